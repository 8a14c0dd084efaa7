"""Meshes, placements and specs in the words of the program: ours, or under tegula.patch() PyTorch's own.

Arguments may be of either kind. What tensors are asked for is of the program's kind: a patched program keeps PyTorch's
DeviceMesh, Shard and DTensorSpec, with all that these can do, and only its tensors are ours.
"""

import math
import re

import torch

from .. import _mesh, _tegula, _world
from .._tegula import DeviceMesh, MaskPartial, Partial, Replicate, Shard, UsageError
from ._spec import DTensorSpec, TensorMeta

_of_pytorch = None  # its modules with meshes, placements and specs, while the program speaks its words
_made: dict = {}  # (PyTorch's mesh, its root): (the world, our mesh)
_known: dict = {}  # (rank, our mesh): (the world, PyTorch's mesh)


class _PyTorch:
    def __init__(self):
        from torch.distributed import device_mesh
        from torch.distributed.tensor import _dtensor_spec, placement_types

        self.device_mesh, self.placement_types, self.spec = device_mesh, placement_types, _dtensor_spec


def speak_pytorch():
    """From here on tensors answer with PyTorch's values."""
    global _of_pytorch
    _of_pytorch = _PyTorch()


def current_mesh():
    """Our mesh for the one that a with statement holds. UsageError if none does."""
    if _of_pytorch is not None and _of_pytorch.device_mesh._mesh_resources.mesh_stack:
        return our_mesh(_of_pytorch.device_mesh._mesh_resources.mesh_stack[-1])
    return _mesh.current_mesh()


# Meshes


def our_mesh(mesh):
    """Our mesh of the same ranks; a slice of PyTorch's is a slice of ours. None: the current one."""
    if mesh is None:
        return current_mesh()
    if isinstance(mesh, DeviceMesh):
        return mesh
    if _of_pytorch is None:
        raise UsageError("tegula: this mesh is PyTorch's\n  hint    tegula.dtensor.init_device_mesh makes one of "
                         "Tegula's; tegula.patch() takes PyTorch's")
    world, key = _world.this_world(), (mesh, mesh._get_root_mesh())
    if _made.get(key, (None, None))[0] is not world:
        made = _as_ours(mesh)
        _made[key] = world, made
        if _known.get((world.rank, made), (None, None))[0] is not world:  # of equal meshes the first is shown
            _known[world.rank, made] = world, mesh
    return _made[key][1]


def shown_mesh(mesh):
    """The mesh that the program knows this one by; ours where it has none."""
    if _of_pytorch is None:
        return mesh
    return _known.get((_tegula.world_of_mesh(mesh).rank, mesh), (None, mesh))[1]


def _as_ours(mesh):
    root = mesh._get_root_mesh()
    names = mesh.mesh_dim_names or [f"axis{dim}" for dim in range(mesh.ndim)]
    if root is not mesh:
        axes = [_axes_of(root, layout, name) for layout, name in zip(mesh._layout, names)]
        if all(axes):
            return _slice(our_mesh(root), axes, names)
    return _world.init_device_mesh(mesh.device_type, tuple(mesh.shape), mesh_dim_names=names,
                                   ranks=mesh.mesh.flatten().tolist())


def _axes_of(root, layout, name):
    """The axes of a root, the last running fastest, that an axis of another mesh consists of; None: of parts of them."""
    own = dict(zip(root.mesh_dim_names or (), root._layout))
    if own.get(name) == layout:
        return [name]
    places = {parts[0][1]: (axis, parts[0][0]) for axis, parts in
              ((axis, list(other.sizes_and_strides)) for axis, other in own.items()) if parts}
    found = []
    for size, stride in layout.sizes_and_strides:
        run, steps = [], 1
        while steps < size and stride * steps in places:
            axis, length = places[stride * steps]
            run.insert(0, axis)
            steps *= length
        if steps != size:
            return None
        found += run
    return found


def _slice(root, axes, names):
    parts = [root[name] if of_one == [name] else root[of_one].flatten(name) for of_one, name in zip(axes, names)]
    return parts[0] if len(parts) == 1 else DeviceMesh.concatenate(parts)


# Placements

_BLOCKS = re.compile(r"blocks=(\d+)")


def our_placement(placement):
    if _of_pytorch is None or isinstance(placement, (Replicate, Shard, Partial, MaskPartial)):
        return placement
    kinds = _of_pytorch.placement_types
    if isinstance(placement, kinds._StridedShard):
        return Shard(placement.dim, blocks=placement.split_factor)
    if isinstance(placement, kinds.Shard):
        return Shard(placement.dim)
    if isinstance(placement, kinds.Replicate):
        return Replicate()
    if isinstance(placement, kinds._MaskPartial):
        return MaskPartial(placement.offset_shape[placement.offset_dim])
    if isinstance(placement, kinds.Partial):
        return Partial(placement.reduce_op)
    raise UsageError(f"tegula: this is no placement\n  given   {placement!r}\n"
                     "  hint    a list with one of Shard, Replicate, Partial per axis of the mesh")


def our_placements(placements, mesh):
    """One per axis of our mesh; None: replicated. Those of PyTorch's that say an order of cuts say it in blocks."""
    return [Replicate()] * mesh.ndim if placements is None else [our_placement(one) for one in placements]


def placements_of_spec(spec):
    """Ours of a spec of PyTorch's, which may say besides in which order several axes cut one dim."""
    placements = our_placements(spec.placements, our_mesh(spec.mesh))
    if getattr(spec, "use_strided_shard_as_shard_order", False):
        return placements
    for dim, axes in getattr(spec, "shard_order", None) or ():
        for place, axis in enumerate(axes):
            groups = math.prod(spec.mesh.size(before) for before in axes[:place] if before > axis)
            if groups > 1:
                placements[axis] = Shard(dim, blocks=groups)
    return placements


def shown_placement(placement):
    kinds = _of_pytorch.placement_types
    if isinstance(placement, Shard):
        blocks = _BLOCKS.search(repr(placement))
        return kinds._StridedShard(placement.dim, split_factor=int(blocks[1])) if blocks else kinds.Shard(placement.dim)
    if isinstance(placement, Replicate):
        return kinds.Replicate()
    if isinstance(placement, MaskPartial):
        return kinds._MaskPartial(offset_shape=torch.Size([placement.extent]), offset_dim=0)
    return kinds.Partial(placement.reduce_op)


def shown_placements(tensor):
    ours = _tegula.placements(tensor)
    return ours if _of_pytorch is None else tuple(map(shown_placement, ours))


def shown_spec(tensor):
    """What all ranks know of a tensor; an order of cuts is said as one, where it is one."""
    mesh, placements = shown_mesh(_tegula.mesh(tensor)), shown_placements(tensor)
    if _of_pytorch is None:
        return DTensorSpec(mesh, placements, TensorMeta(tensor.shape, tensor.stride(), tensor.dtype))
    kinds = _of_pytorch.spec
    meta = kinds.TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
    order = kinds.DTensorSpec._maybe_convert_StridedShard_to_shard_order(placements, mesh)
    if order is not None:
        shard = _of_pytorch.placement_types.Shard
        placements = tuple(shard(one.dim) if type(one).__name__ == "_StridedShard" else one for one in placements)
    return kinds.DTensorSpec(mesh, placements, tensor_meta=meta, shard_order=order)
