"""The names of torch.distributed.tensor.experimental that are here, too."""

import functools

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .. import _tegula, _tensors
from .._tegula import UsageError, implicit_replication, is_dtensor

__all__ = ["implicit_replication", "local_map"]


def local_map(func=None, out_placements=None, in_placements=None, in_grad_placements=None, device_mesh=None, *,
              redistribute_inputs=False):
    """The function on the tiles of its distributed arguments; its results become distributed.

    out_placements: of each result, None for what stays plain. in_placements: of each argument; one that is placed
    otherwise is a UsageError, or moved there with redistribute_inputs. in_grad_placements: of the gradients.
    """
    if func is None:
        return functools.partial(local_map, out_placements=out_placements, in_placements=in_placements,
                                 in_grad_placements=in_grad_placements, device_mesh=device_mesh,
                                 redistribute_inputs=redistribute_inputs)

    @functools.wraps(func)
    def on_tiles(*args, **kwargs):
        flat, tree = tree_flatten(args)
        meshes = [_tegula.mesh(value) for value in flat if _is_distributed(value)]
        mesh = device_mesh or (meshes[0] if meshes else None)
        tiles = [_tile(value, mesh, _at(in_placements, k), _at(in_grad_placements, k), redistribute_inputs)
                 for k, value in enumerate(flat)]
        results = func(*tree_unflatten(tiles, tree), **kwargs)
        if mesh is None:
            return results
        values, shape = tree_flatten(results)
        placed = [out_placements] if _is_one(out_placements) else list(out_placements)
        if len(placed) != len(values):
            raise UsageError(f"tegula: a function gives {len(values)} results, and out_placements is about {len(placed)}\n"
                             "  hint    one list of placements per result, None for what is no tensor")
        return tree_unflatten([value if where is None or not isinstance(value, torch.Tensor) else
                               _tensors.from_local(value, mesh, list(where)) for value, where in zip(values, placed)], shape)

    return on_tiles


def _is_distributed(value):
    return isinstance(value, torch.Tensor) and is_dtensor(value)


def _is_one(placements):
    """One list of placements, not one list per result."""
    return placements is None or len(placements) == 0 or hasattr(placements[0], "is_shard")


def _at(placements, place):
    return None if placements is None else placements[place]


def _tile(value, mesh, asked, grad_placements, may_move):
    if not _is_distributed(value):
        return value
    if asked is not None:
        asked = [_tegula.Shard(p.dim + value.ndim) if p.is_shard() and p.dim < 0 else p for p in asked]
        if list(_tegula.placements(value)) != asked:
            if not may_move:
                raise UsageError("tegula: an argument of local_map is placed otherwise than asked\n"
                                 f"  tensor  {_tegula.spec(value)}\n  asked   {asked}\n"
                                 "  hint    set redistribute_inputs=True")
            value = _tensors.redistribute(value, mesh, asked)
    return _tensors.to_local(value, None if grad_placements is None else list(grad_placements))
