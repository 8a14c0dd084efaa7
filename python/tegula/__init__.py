"""Tegula: distributed tensors. Write the program for the whole tensor, run it on every rank.

    import torch, tegula as tg

    tg.init()                                    # tegula run -n 4 python program.py
    mesh = tg.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    w = tg.distribute_tensor(weight, mesh, [tg.Replicate(), tg.Shard(0)])
    y = torch.nn.functional.linear(x, w).relu()  # plain torch; w is a torch.Tensor
    tg.full_tensor(y)                            # the whole, on every rank

A distributed tensor is a torch.Tensor with the whole tensor's shape; this rank's tile and the spec
ride along. Functions that communicate are called by all ranks of the mesh, in the same order.
"""

import atexit as _atexit
import datetime as _datetime

import torch as _torch  # loads the libraries that _tegula stands on

from . import _tegula
from ._tegula import (
    CommError,
    DeviceMesh,
    Error,
    InternalError,
    MaskPartial,
    Partial,
    Replicate,
    Shard,
    UsageError,
    World,
    implicit_replication,
    is_dtensor,
)

__all__ = [
    "CommError", "DeviceMesh", "Error", "InternalError", "MaskPartial", "Partial", "Replicate",
    "Shard", "UsageError", "World", "arange", "distribute_module", "distribute_tensor", "empty", "eye",
    "from_local", "full", "full_tensor", "implicit_replication", "init", "init_device_mesh",
    "is_dtensor", "manual_seed", "mesh", "ones", "placements", "rand", "randint", "randn", "rank",
    "redistribute", "rng_state", "set_rng_state", "size", "spec", "to_local", "to_string", "zeros",
]

_world = None


# The world


def init(backend=None, timeout=None):
    """Finds the other ranks as the launcher's environment says; alone if there is no launcher.

    backend: "shm", "gloo", "mpi"; None: what the launcher said, else shm on one host.
    timeout: how long a rank waits for another, in seconds or as a timedelta.
    Called again it makes a new world, on all ranks; meshes and tensors of the old one keep it.
    """
    global _world
    if timeout is not None and not isinstance(timeout, _datetime.timedelta):
        timeout = _datetime.timedelta(seconds=timeout)
    _world = World.from_env(backend or "", timeout)
    return _world


@_atexit.register
def _leave():
    global _world
    _world = None


def _this_world():
    if _world is None:
        raise UsageError("tegula: there is no world yet\n  hint    call tegula.init() first")
    return _world


def rank():
    """This process's place among the ranks of the job."""
    return _this_world().rank


def size():
    """How many ranks the job has."""
    return _this_world().size


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, ranks=()):
    """A mesh over ranks 0, 1, ... of the world, or over the ones listed, row by row.

    Axes without names are called axis0, axis1, ...
    """
    if mesh_dim_names is None:
        mesh_dim_names = [f"axis{i}" for i in range(len(mesh_shape))]
    if len(mesh_dim_names) != len(mesh_shape):
        raise UsageError(f"tegula: {len(mesh_shape)} sizes of axes, but {len(mesh_dim_names)} names\n"
                         "  hint    give one name per axis")
    return _this_world().mesh(list(zip(mesh_dim_names, mesh_shape)), list(ranks), device_type)


# Distributed tensors


def _replicated_unless(placements, mesh):
    return [Replicate()] * mesh.ndim if placements is None else placements


def distribute_tensor(tensor, mesh, placements=None, src_data_rank=0):
    """A plain tensor, distributed; replicated if no placements are given.

    src_data_rank: whose data counts, as a place in mesh.ranks; the others only say shape and dtype.
    None: every rank has the same data, and nothing is sent.
    """
    if src_data_rank is None:
        source = None
    else:
        source = -1 if src_data_rank == 0 else mesh.ranks[src_data_rank]
    return _tegula.distribute_tensor(tensor, mesh, _replicated_unless(placements, mesh), source)


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
    return _tegula.redistribute(tensor, mesh, _replicated_unless(placements, mesh), async_op, wire)


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
    """True values and the spec; what is large is summarised. Communicates."""
    return _tegula.to_string(tensor)


# Distributed tensors from nothing: each rank makes its own tile, the whole exists nowhere


def _factory(name, doc):
    make = getattr(_tegula, name)

    def factory(size, mesh, placements=None, *, dtype=None, requires_grad=False):
        return make(size, mesh, _replicated_unless(placements, mesh), dtype, requires_grad)

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
    return _tegula.full(size, value, mesh, _replicated_unless(placements, mesh), dtype, requires_grad)


def arange(start, end, step, mesh, placements=None, *, dtype=None, requires_grad=False):
    """start, start + step, ... below end."""
    return _tegula.arange(start, end, step, mesh, _replicated_unless(placements, mesh), dtype, requires_grad)


def randint(low, high, size, mesh, placements=None, *, dtype=None, requires_grad=False):
    """Whole numbers of [low, high); the same ones on any mesh."""
    return _tegula.randint(low, high, size, mesh, _replicated_unless(placements, mesh), dtype, requires_grad)


def eye(rows, columns, mesh, placements=None, *, dtype=None, requires_grad=False):
    """Ones on the diagonal, zeros elsewhere."""
    return _tegula.eye(rows, columns, mesh, _replicated_unless(placements, mesh), dtype, requires_grad)


# Random numbers


def manual_seed(seed):
    """Of the random numbers of distributed tensors. All ranks set the same."""
    _tegula.manual_seed(_this_world(), seed)


def rng_state():
    """(seed, number of the next draw); set_rng_state takes it back."""
    return _tegula.rng_state(_this_world())


def set_rng_state(state):
    _tegula.set_rng_state(_this_world(), tuple(state))


# Modules


def _distribute_in_place(tensor, mesh, placements):
    # Assigning .data keeps the object: every module, optimizer and closure that holds it sees it.
    tensor.data = distribute_tensor(tensor.data, mesh, placements)


def distribute_module(module, mesh, partition=None):
    """Makes the parameters, their gradients and the buffers of a module distributed, in place.

    partition(name, parameter) gives a parameter's placements; None: replicated, as buffers are.
    Tied parameters are converted once. What is distributed already stays. Returns the module.
    """
    for name, parameter in module.named_parameters():
        if _torch.nn.parameter.is_lazy(parameter):
            raise UsageError(f"tegula: parameter {name} has no shape yet\n"
                             "  hint    run the lazy module once, then distribute it")
        if is_dtensor(parameter):
            continue
        placements = partition(name, parameter) if partition else None
        gradient = parameter.grad
        parameter.grad = None
        _distribute_in_place(parameter, mesh, placements)
        if gradient is not None:
            parameter.grad = distribute_tensor(gradient.detach(), mesh, placements)
    for _, buffer in module.named_buffers():
        if not is_dtensor(buffer):
            _distribute_in_place(buffer, mesh, None)
    return module
