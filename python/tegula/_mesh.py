"""What PyTorch's DeviceMesh can do besides, as methods of ours: process groups, slices by name, meshes as contexts."""

import threading

import torch

from . import _tegula
from ._tegula import DeviceMesh, UsageError

_entered = threading.local()  # the meshes that a with statement holds
_flattened: dict = {}  # by root and name: slices that were flattened, for mesh["dp_cp"]
_process_groups: dict = {}  # torch's, by ranks


def current_mesh():
    """The mesh that a with statement holds on this thread. UsageError if none does."""
    meshes = getattr(_entered, "meshes", None)
    if not meshes:
        raise UsageError("tegula: no mesh is given, and none is active\n  hint    pass one, or use `with mesh:`")
    return meshes[-1]


def __enter__(self):
    _entered.__dict__.setdefault("meshes", []).append(self)
    return self


def __exit__(self, *_):
    _entered.meshes.pop()


_slice = DeviceMesh.__getitem__


def __getitem__(self, names):
    """The axis of this name, or the axes of these names in this order; of a flattened slice, too."""
    if isinstance(names, str):
        if names not in self.names and (self.root, names) in _flattened:
            return _flattened[self.root, names]
        return _slice(self, names)
    return _slice(self, list(names))


def _flatten(self, mesh_dim_name=None, backend_override=None):
    """All axes as one; the root knows it by its name from then on."""
    flat = self.flatten(mesh_dim_name or "")
    _flattened[self.root, flat.names[0]] = flat
    return flat


def _unflatten(self, dim, mesh_sizes, mesh_dim_names, backend_override=None):
    """One axis as several, the last running fastest."""
    if len(mesh_sizes) != len(mesh_dim_names):
        raise UsageError(f"tegula: {len(mesh_sizes)} sizes of axes, but {len(mesh_dim_names)} names\n"
                         "  hint    give one name per axis")
    return self.unflatten(dim, list(zip(mesh_dim_names, mesh_sizes)))


def get_group(self, mesh_dim=None):
    """torch.distributed's process group of the ranks along an axis, for calls of torch.distributed.

    Made when it is first asked for, by the ranks that are in it. Tegula itself does not use it: tegula.group does.
    """
    ranks = tuple(self.ranks_along(mesh_dim))
    if not torch.distributed.is_initialized():
        raise UsageError("tegula: torch.distributed has no process group to be asked for\n"
                         "  hint    tegula.group(mesh=mesh, axis=...) has collectives of its own; or call "
                         "torch.distributed.init_process_group first")
    if ranks not in _process_groups:
        everyone = range(torch.distributed.get_world_size())
        _process_groups[ranks] = (torch.distributed.group.WORLD if ranks == tuple(everyone) else
                                  torch.distributed.new_group(list(ranks), use_local_synchronization=True))
    return _process_groups[ranks]


def get_all_groups(self):
    """One process group per axis."""
    return [get_group(self, axis) for axis in range(self.ndim)]


def mesh(self):
    """The ranks around this one as a tensor, one dim per axis."""
    return torch.tensor(self.ranks, dtype=torch.int).reshape(self.shape)


def forget_world():
    """Lets go of what belongs to a world that is left."""
    _flattened.clear()
    _process_groups.clear()


for _method in (__enter__, __exit__, __getitem__, _flatten, _unflatten, get_group, get_all_groups):
    setattr(DeviceMesh, _method.__name__, _method)
DeviceMesh.mesh = property(mesh)
DeviceMesh._get_root_mesh = lambda self: self.root
