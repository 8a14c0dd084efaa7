"""Distributed tensors: how they are made, asked, moved; and work on their tiles."""

import torch

from . import _tegula
from ._tegula import Replicate


def replicated_unless(placements, mesh):
    return [Replicate()] * mesh.ndim if placements is None else placements


def distribute_tensor(tensor, mesh, placements=None, src_data_rank=0):
    """A plain tensor, distributed; replicated if no placements are given.

    src_data_rank: whose data counts, as a place in mesh.ranks; the others only say shape and dtype.
    On a slice of a mesh each fiber takes the data of its own rank at that place.
    None: every rank has the same data, and nothing is sent.
    """
    return _tegula.distribute_tensor(tensor, mesh, replicated_unless(placements, mesh), src_data_rank)


def shard_batch(batch, mesh, axis=""):
    """A batch that every rank has alike, cut by rows over the data axis; nothing is sent.

    axis: the data axis; "": the one called "dp", or the only one that the mesh has.
    """
    return _tegula.shard_batch(batch, mesh, axis)


def from_local(local, mesh, placements, shape=None, stride=None, run_check=True, grad_placements=None):
    """The tiles that the ranks hold, as one tensor that shares memory with them. Differentiable.

    shape, stride: of the whole; None: found out by exchanging the tiles' sizes.
    run_check: send the tiles' sizes around and name the ranks that disagree.
    grad_placements: how the gradient that reaches `local` is placed.
    """
    return _tegula.from_local(local, mesh, placements, shape, stride, run_check, grad_placements)


def to_local(tensor, grad_placements=None):
    """This rank's tile; shares memory with the tensor. Differentiable.

    grad_placements: how the gradients of the tiles form a tensor; None: as this one is placed.
    """
    return _tegula.to_local(tensor, grad_placements)


def full_tensor(tensor, grad_placements=None):
    """The whole tensor, plain, on every rank of the mesh. Differentiable."""
    return _tegula.full_tensor(tensor, grad_placements)


def redistribute(tensor, mesh=None, placements=None, async_op=False, wire=None):
    """The same tensor placed otherwise, on its own mesh (None) or on another one. Differentiable.

    async_op: return at once; the result is waited for when it is first used.
    wire: a dtype to send it in.
    """
    mesh = _tegula.mesh(tensor) if mesh is None else mesh
    return _tegula.redistribute(tensor, mesh, replicated_unless(placements, mesh), async_op, wire)


def local_map(function, inputs, out_placements, in_placements=(), in_grad_placements=()):
    """Calls function(*tiles) with the tiles of the distributed tensors among the inputs.

    Others pass as they are. What it returns, one tensor or several, becomes distributed: placed as
    out_placements says, one list of placements per result.
    in_placements: where the distributed inputs are brought first, one list each; empty: they stay.
    in_grad_placements: how the gradients of the tiles are placed; empty: as the inputs, but that those of
    replicas are added up. The gradient of a result that all ranks hold alike comes to one of them.
    """
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    is_one = False

    def on_tiles(tiles):
        nonlocal is_one
        tiles = iter(tiles)
        results = function(*(next(tiles) if isinstance(x, torch.Tensor) else x for x in inputs))
        is_one = isinstance(results, torch.Tensor)
        return [results] if is_one else list(results)

    results = _tegula.local_map(on_tiles, tensors, list(out_placements), list(in_placements), list(in_grad_placements))
    return results[0] if is_one else results


def placements(tensor):
    """What each axis of the mesh does to the tensor."""
    return _tegula.placements(tensor)


def mesh(tensor):
    """The mesh that the tensor is distributed over."""
    return _tegula.mesh(tensor)


def spec(tensor):
    """For example "f32[8, 16] on (dp=2, tp=4) as [R, S(0)]"."""
    return _tegula.spec(tensor)


def to_string(tensor):
    """True values and the spec; what is large is summarised.

    Communicates, so all ranks call it, not only the one that prints. print(x) does not: it shows this
    rank's tile.
    """
    return _tegula.to_string(tensor)


# Distributed tensors from nothing: each rank makes its own tile, the whole exists nowhere


def _factory(name, doc):
    make = getattr(_tegula, name)

    def factory(size, mesh, placements=None, *, dtype=None, requires_grad=False):
        return make(size, mesh, replicated_unless(placements, mesh), dtype, requires_grad)

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = doc
    return factory


empty = _factory("empty", "A tensor of this size whose values are not set.")
zeros = _factory("zeros", "A tensor of zeros.")
ones = _factory("ones", "A tensor of ones.")
rand = _factory("rand", "Uniform in [0, 1); the same numbers on any mesh.")
randn = _factory("randn", "Standard normal; the same numbers on any mesh.")


def full(size, value, mesh, placements=None, *, dtype=None, requires_grad=False):
    """A tensor of one value."""
    return _tegula.full(size, value, mesh, replicated_unless(placements, mesh), dtype, requires_grad)


def arange(start, end, step, mesh, placements=None, *, dtype=None, requires_grad=False):
    """start, start + step, ... below end."""
    return _tegula.arange(start, end, step, mesh, replicated_unless(placements, mesh), dtype, requires_grad)


def randint(low, high, size, mesh, placements=None, *, dtype=None, requires_grad=False):
    """Whole numbers of [low, high); the same ones on any mesh."""
    return _tegula.randint(low, high, size, mesh, replicated_unless(placements, mesh), dtype, requires_grad)


def eye(rows, columns, mesh, placements=None, *, dtype=None, requires_grad=False):
    """Ones on the diagonal, zeros elsewhere."""
    return _tegula.eye(rows, columns, mesh, replicated_unless(placements, mesh), dtype, requires_grad)


# Tiles and their neighbours


def halo(tensor, dims, widths, boundary="zeros"):
    """This rank's tile with ghost cells around it along these dims: a plain tensor. Differentiable.

    widths: (before, after) per dim. boundary: what lies beyond the whole tensor: "zeros", "clipped" (nothing),
    "periodic", "reflect", "nearest".
    """
    return _tegula.halo(tensor, list(dims), [tuple(width) for width in widths], boundary)


def exchange(rows, send_lists, group=None):
    """Sends rows to other ranks: those that send_lists[r] numbers go to rank r. (what came, how many from each).

    Rows of a plain tensor among a group, or of this rank's tile of a distributed one along the axes that cut
    its dim 0. Differentiable.
    """
    return _tegula.exchange(rows, list(send_lists), group)


# Collectives with gradients, on plain tensors: the loss is the sum of what the ranks backpropagate


def all_reduce(tensor, group, op="sum"):
    """The reduction of all members' tensors, on all of them."""
    return _tegula.all_reduce(tensor, group, op)


def all_gather(tensor, group, dim=0, sizes=()):
    """The members' tensors, joined along a dim; sizes: what each has along it, if they differ."""
    return _tegula.all_gather(tensor, group, dim, list(sizes))


def reduce_scatter(tensor, group, dim=0, op="sum", sizes=()):
    """This rank's part, along a dim, of the reduction of all members' tensors."""
    return _tegula.reduce_scatter(tensor, group, dim, op, list(sizes))


def all_to_all(tensor, group, split_dim=0, join_dim=0, split_sizes=(), join_sizes=()):
    """Part r of the tensor goes to rank r; what comes is joined."""
    return _tegula.all_to_all(tensor, group, split_dim, join_dim, list(split_sizes), list(join_sizes))


def broadcast(tensor, group, root=0):
    """The root's tensor."""
    return _tegula.broadcast(tensor, group, root)


def permute(tensor, group, to):
    """Rank r's tensor goes to rank to[r], -1: to nobody. Zeros where nobody sends."""
    return _tegula.permute(tensor, group, list(to))
