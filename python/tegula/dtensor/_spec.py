"""What PyTorch's programs read from x._spec."""

from typing import NamedTuple

import torch


class TensorMeta(NamedTuple):
    shape: torch.Size
    stride: tuple
    dtype: torch.dtype


class DTensorSpec:
    """Mesh, placements, and what the whole tensor is like. A value."""

    def __init__(self, mesh, placements, tensor_meta=None):
        self.mesh, self.placements, self.tensor_meta = mesh, tuple(placements), tensor_meta

    @property
    def device_mesh(self):
        return self.mesh

    @property
    def shape(self):
        return self.tensor_meta.shape

    @property
    def stride(self):
        return self.tensor_meta.stride

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def num_shards(self):
        shards = 1
        for axis, placement in enumerate(self.placements):
            shards *= self.mesh.size(axis) if placement.is_shard() else 1
        return shards

    @property
    def dim_map(self):
        """The axis that cuts each dim; -1: none."""
        cut_by = {placement.dim: axis for axis, placement in enumerate(self.placements) if placement.is_shard()}
        return [cut_by.get(dim, -1) for dim in range(self.ndim)]

    @property
    def sums(self):
        """The axes over which a reduction is owed."""
        return [axis for axis, placement in enumerate(self.placements) if placement.is_partial()]

    def is_replicated(self):
        return all(placement.is_replicate() for placement in self.placements)

    def is_sharded(self):
        return any(placement.is_shard() for placement in self.placements)

    def _key(self):
        return self.mesh, self.placements, self.tensor_meta

    def __eq__(self, other):
        return isinstance(other, DTensorSpec) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        return f"DTensorSpec({self.mesh}, {list(self.placements)}, {self.tensor_meta})"
