"""Between PyTorch's own DTensors and ours, in one program. Locals are shared, nothing is sent.

Not under tegula.patch(), where there are none of PyTorch's own.
"""

import torch

from .. import _tegula, _tensors
from .._tegula import MaskPartial, Partial, Replicate, Shard, UsageError
from .device_mesh import DeviceMesh


def _refused(what, value, hint):
    return UsageError(f"tegula: {what}\n  given   {value}\n  hint    {hint}")


def from_torch(tensor, mesh=None):
    """A DTensor of PyTorch's as one of ours that shares its local. mesh: ours; None: one over the same ranks.

    Differentiable: gradients reach PyTorch's tensor. UsageError for placements that only PyTorch has.
    """
    import torch.distributed.tensor as theirs

    if not isinstance(tensor, theirs.DTensor) or _tegula.is_dtensor(tensor):
        raise _refused("from_torch takes a DTensor of PyTorch's", type(tensor).__name__, "tegula.from_local takes plain tensors")
    if mesh is None:
        grid = tensor.device_mesh
        mesh = DeviceMesh(grid.device_type, grid.mesh, mesh_dim_names=grid.mesh_dim_names)
    made = []
    for placement in tensor.placements:
        kind = type(placement).__name__
        if kind not in ("Shard", "Replicate", "Partial"):
            raise _refused("this placement is PyTorch's alone", placement, "redistribute the tensor there first")
        made.append(Shard(placement.dim) if kind == "Shard" else
                    Replicate() if kind == "Replicate" else Partial(placement.reduce_op))
    return _tensors.from_local(tensor.to_local(), mesh, made, list(tensor.shape), list(tensor.stride()), run_check=False)


def to_torch(tensor, device_mesh):
    """One of our distributed tensors as a DTensor of PyTorch's, on a mesh of its own, that shares the local.

    Differentiable. UsageError for cuts that PyTorch does not have: given sizes, blocks.
    """
    import torch.distributed.tensor as theirs

    made = []
    for placement in _tegula.placements(tensor):
        if isinstance(placement, MaskPartial) or (placement.is_shard() and placement != Shard(placement.dim)):
            raise _refused("PyTorch has no such placement", placement, "redistribute the tensor first")
        made.append(theirs.Shard(placement.dim) if placement.is_shard() else
                    theirs.Replicate() if placement.is_replicate() else theirs.Partial(placement.reduce_op))
    return theirs.DTensor.from_local(_tensors.to_local(tensor), device_mesh, made, run_check=False,
                                     shape=torch.Size(tensor.shape), stride=tensor.stride())
