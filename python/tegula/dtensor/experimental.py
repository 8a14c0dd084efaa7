"""The names of torch.distributed.tensor.experimental that are here, too."""

import functools
import threading

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .. import _rules, _tegula, _tensors
from .._tegula import UsageError, implicit_replication, is_dtensor, strict_mode
from ._values import our_placement, shown_spec

__all__ = ["ExplicitRedistributionContext", "implicit_replication", "local_map", "register_sharding"]


class ExplicitRedistributionContext:
    """While it is entered, an op that would move data unasked is a UsageError: tegula.strict_mode().

    enable=False: not so, inside of one that is entered. strict: movements that send nothing are refused there; here
    they are no movements.
    """

    _of_thread = threading.local()

    def __init__(self, enable=True, strict=False, mode="raise"):
        if mode != "raise":
            raise UsageError(f"tegula: movements of data are refused or made, not warned of\n  mode    {mode}\n"
                             "  hint    tegula.CommLog lists them, with their reasons")
        self._enable = enable

    def __enter__(self):
        active = self._of_thread.__dict__.setdefault("active", [])  # a switch, or None where it is off
        if active and active[-1] is not None:
            active[-1].__exit__(None, None, None)
        active.append(strict_mode() if self._enable else None)
        if active[-1] is not None:
            active[-1].__enter__()
        return self

    def __exit__(self, *error):
        active = self._of_thread.active
        last = active.pop()
        if last is not None:
            last.__exit__(None, None, None)
        if active and active[-1] is not None:
            active[-1] = strict_mode()
            active[-1].__enter__()


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


def register_sharding(op):
    """Decorates a function that says how an operator, or each of several, may be carried out on the tiles.

    The function gets the operator's arguments, with the spec of each distributed tensor in its place, and gives
    a list of (placements of results, placements of arguments or None), about one axis of a mesh. Along each axis the
    way that moves least is taken. A rule as text says more: tegula.register_sharding.
    """
    ops = op if isinstance(op, (list, tuple)) else [op]

    def register(function):
        for one in ops:
            _rules.register_decomposition(one, functools.partial(_carry_out, one, function))
        return function

    return register


def _carry_out(op, function, *args):
    tensors = [value for value in args if _is_distributed(value)]
    mesh = _tegula.mesh(tensors[0])
    ways = [([our_placement(p) for p in results], [p if p is None else our_placement(p) for p in wanted])
            for results, wanted in function(*(shown_spec(value) if _is_distributed(value) else value for value in args))]
    if any(_tegula.mesh(tensor) != mesh for tensor in tensors) or not ways:
        raise UsageError(f"tegula: there is no way to carry out {op.name()} on the tiles\n"
                         "  hint    register_sharding's function lists ways, one at least; arguments are on one mesh")
    chosen = [min(ways, key=functools.partial(_moved, args, axis)) for axis in range(mesh.ndim)]
    tiles = [_tensors.to_local(_tensors.redistribute(value, mesh, [wanted[place] for _, wanted in chosen]))
             if _is_distributed(value) else value for place, value in enumerate(args)]
    whole = _call(op, [torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                       if isinstance(value, torch.Tensor) else value for value in args])
    results = _call(op, tiles)
    is_one = isinstance(results, torch.Tensor)
    made = [_tensors.from_local(result, mesh, [placed[place] for placed, _ in chosen], list(like.shape),
                                list(like.stride()), run_check=False)
            for place, (result, like) in enumerate(zip([results] if is_one else results, [whole] if is_one else whole))]
    made = [result if into is None else args[into].copy_(result) for result, into in zip(made, _written(op))]
    return made[0] if is_one else tuple(made)


def _call(op, values):
    """An operator on values in the order of its signature, some of which it takes by name only."""
    named = {argument.name: value for argument, value in zip(op._schema.arguments, values) if argument.kwarg_only}
    return op(*values[:len(values) - len(named)], **named)


def _written(op):
    """For each result, the place of the argument that it is: of in-place and out= forms; else None."""
    def places(alias):
        return [place for place, argument in enumerate(op._schema.arguments)
                if alias and alias.is_write and argument.alias_info and argument.alias_info.before_set == alias.before_set]
    return [next(iter(places(result.alias_info)), None) for result in op._schema.returns]


def _moved(args, axis, way):
    """How many elements a way moves along an axis; what cuts a replica moves none."""
    _, wanted = way
    moved = 0
    for value, placement in zip(args, wanted):
        if _is_distributed(value) and placement is not None:
            held = _tegula.placements(value)[axis]
            moved += 0 if held == placement or held.is_replicate() and placement.is_shard() else value.numel()
    return moved
