"""The names of torch.distributed.device_mesh."""

import torch

from .. import _world
from .._tegula import DeviceMesh as _DeviceMesh
from .._tegula import UsageError
from ._ranks import ensure_world

__all__ = ["DeviceMesh", "init_device_mesh"]


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """A mesh over ranks 0, 1, ... The world is made first if there is none, of the ranks that torch.distributed has.

    Axes without names are called axis0, axis1, ...
    """
    _refuse_backends(backend_override)
    ensure_world()
    return _world.init_device_mesh(device_type, tuple(mesh_shape), mesh_dim_names=mesh_dim_names)


def _refuse_backends(backend_override):
    if backend_override is not None:
        raise UsageError("tegula: backend_override names backends of torch.distributed\n"
                         "  hint    tegula.init(backend=...) chooses one for all axes")


class _DeviceMeshType(type):
    def __instancecheck__(cls, value):
        return isinstance(value, _DeviceMesh)

    def __call__(cls, device_type, mesh, *, mesh_dim_names=None, backend_override=None, _init_backend=True, _rank=None):
        _refuse_backends(backend_override)
        ensure_world()
        ranks = torch.as_tensor(mesh, dtype=torch.int64, device="cpu")
        return _world.init_device_mesh(device_type, tuple(ranks.shape), mesh_dim_names=mesh_dim_names,
                                       ranks=ranks.flatten().tolist())


class DeviceMesh(metaclass=_DeviceMeshType):
    """Ranks arranged in a grid: DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))."""

    @staticmethod
    def from_group(group, device_type, mesh=None, *, mesh_dim_names=None):
        """A mesh over the ranks of torch.distributed's process group; several groups need `mesh`."""
        if not isinstance(group, (list, tuple)):
            mesh = torch.distributed.get_process_group_ranks(group)
        elif mesh is None:
            raise UsageError("tegula: how do several process groups form a mesh?\n  hint    pass mesh=, the ranks row by row")
        return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)

    _concatenate = staticmethod(_DeviceMesh.concatenate)
