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

from . import _tegula, _tensor_methods
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
    gradient_policy,
    implicit_replication,
    is_dtensor,
    strict_mode,
)

__all__ = [
    "CommError", "CommLog", "DeviceMesh", "Error", "InternalError", "MaskPartial", "Partial",
    "Replicate", "Shard", "UsageError", "World", "arange", "distribute_module",
    "distribute_optimizer_state", "distribute_tensor", "empty", "eye", "from_local", "full",
    "full_tensor", "gradient_policy", "implicit_replication", "init", "init_device_mesh", "is_dtensor", "lane", "local_map",
    "manual_seed", "mesh", "ones", "placements", "rand", "randint", "randn", "rank", "recover", "redistribute",
    "reduce_gradients", "register_sharding", "set_gradient_policy",
    "redistribute_module", "rng_state", "set_rng_state", "shard_batch", "size", "spec", "strict_mode",
    "to_local", "to_string", "zeros",
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


def recover():
    """Makes the world usable again after an error that one rank or several met; all ranks call it.

        try:
            step()
        except Exception:
            tg.recover()              # on every rank; one that still waits for another throws first
            optimizer.zero_grad()

    Over shm and gloo, if all ranks are alive. Tensors keep their values; random numbers agree again.
    """
    _this_world().recover()


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
    On a slice of a mesh each fiber takes the data of its own rank at that place.
    None: every rank has the same data, and nothing is sent.
    """
    return _tegula.distribute_tensor(tensor, mesh, _replicated_unless(placements, mesh), src_data_rank)


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
    return _tegula.redistribute(tensor, mesh, _replicated_unless(placements, mesh), async_op, wire)


def local_map(function, inputs, out_placements, in_placements=(), in_grad_placements=()):
    """Calls function(*tiles) with the tiles of the distributed tensors among the inputs.

    Others pass as they are. What it returns, one tensor or several, becomes distributed: placed as
    out_placements says, one list of placements per result.
    in_placements: where the distributed inputs are brought first, one list each; empty: they stay.
    in_grad_placements: how the gradients of the tiles are placed; empty: as the inputs, but that those of
    replicas are added up. The gradient of a result that all ranks hold alike comes to one of them.
    """
    tensors = [x for x in inputs if isinstance(x, _torch.Tensor)]
    is_one = False

    def on_tiles(tiles):
        nonlocal is_one
        tiles = iter(tiles)
        results = function(*(next(tiles) if isinstance(x, _torch.Tensor) else x for x in inputs))
        is_one = isinstance(results, _torch.Tensor)
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


# Gradients


def set_gradient_policy(target, policy):
    """When the reductions that gradients owe are done, for one leaf or for a module's parameters.

    policy: "now" before the gradient is stored (the default), "async" by the end of the backward pass,
    "hold" not before reduce_gradients; or per mesh axis, "hold over dp, else now". What was said for a
    module outranks what was said for a leaf, and the guard gradient_policy(policy) outranks both. All
    ranks say the same. A plain parameter is a UsageError, as is an axis that a parameter's mesh lacks.
    """
    if isinstance(target, _torch.nn.Module):
        for parameter in target.parameters():
            _tegula.set_gradient_policy(parameter, policy, True)
    else:
        _tegula.set_gradient_policy(target, policy, False)


def reduce_gradients(parameters):
    """Pays what the gradients of these leaves owe, in one call per group. All ranks, the same leaves."""
    _tegula.reduce_gradients(list(parameters))


# Rules


def register_sharding(op, rule):
    """How an operator of yours is carried out on distributed tensors: which dims belong together.

        tg.register_sharding("my::op", "mk * kn -> mn")       # or torch.ops.my.op.default

    Equal letters are cut alike, what results lack is summed over; docs/rules.md says what a rule may be. All
    ranks register the same. A rule is believed: prove it with verify_rule (C++, tegula/testing.h).
    """
    _tegula.register_sharding(op if isinstance(op, str) else op.name(), rule)


# Random numbers


def manual_seed(seed):
    """Of the random numbers of distributed tensors; plain ones go on as they would have.

    torch.manual_seed sets both. All ranks set the same.
    """
    _tegula.manual_seed(_this_world(), seed)


def rng_state():
    """(seed, {stream: number of draws since}); set_rng_state takes it back.

    What torch.get_rng_state does not hold: with meshes that leave ranks or axes out, what each has drawn.
    """
    return _tegula.rng_state(_this_world())


def set_rng_state(state):
    seed, draws = state
    _tegula.set_rng_state(_this_world(), seed, draws)


# Communication


class CommLog(_tegula.CommLog):
    """Lists what this rank sends and receives while it is entered, and what for.

        with tg.CommLog() as log:
            y = model(x)
        print(log)                      # one line per collective
        sum(entry.bytes for entry in log.entries())

    Entries have a kind, axis, ranks, bytes, reduction, op and seconds.
    """

    def __init__(self):
        super().__init__(_this_world())


# Modules


def _members(module):
    """[tensor, names, is a parameter] of each parameter and buffer, once each."""
    members = {}
    for is_parameter, named in ((True, module.named_parameters(remove_duplicate=False)),
                                (False, module.named_buffers(remove_duplicate=False))):
        for name, tensor in named:
            if _torch.nn.parameter.is_lazy(tensor):
                raise UsageError(f"tegula: parameter {name} has no shape yet\n"
                                 "  hint    run the lazy module once, then distribute it")
            members.setdefault(id(tensor), (tensor, [], is_parameter))[1].append(name)
    return list(members.values())


def _asked(members, partition):
    """Each member's placements; None where nothing is said of it."""
    if partition is None:
        return [None] * len(members)
    if callable(partition):
        return [partition(names[0], tensor) if is_parameter else None for tensor, names, is_parameter in members]
    patterns = list(partition.items() if hasattr(partition, "items") else partition)
    last = _tegula.last_matches([pattern for pattern, _ in patterns], [names for _, names, _ in members])
    return [None if index is None else patterns[index][1] for index in last]


def distribute_module(module, mesh, partition=None, src_data_rank=0):
    """Makes the parameters, their gradients and the buffers of a module distributed, in place.

    partition: placements by patterns of names, {"layers.*.up.weight": [Shard(0)], ...}. In a pattern *
    stands for any characters up to a dot, ** for any number of parts; the last pattern that matches a
    name counts. A pattern that matches nothing is a UsageError with the nearest names. Or a function
    (name, parameter) -> placements or None. What nothing is said of is replicated.
    src_data_rank: whose data counts, as for distribute_tensor.

    Tied parameters are converted once. What is distributed already stays if nothing is said of it, and
    is a UsageError if it is placed otherwise than asked: use redistribute_module. Returns the module.
    """
    members = _members(module)
    asked = _asked(members, partition)
    for (tensor, names, _), placements in zip(members, asked):
        wanted = _tegula.spec_asked(names[0], tensor, mesh, _replicated_unless(placements, mesh))
        if is_dtensor(tensor) and placements is not None and not _tegula.is_placed(tensor, mesh, placements):
            raise UsageError("tegula: a module's tensor is distributed already, and placed otherwise than asked\n"
                             f'  tensor  "{names[0]}"\n'
                             f"  is      {spec(tensor)}\n"
                             f"  asked   {wanted}\n"
                             "  hint    redistribute_module moves it; what nothing is said of stays as it is")
    for (tensor, _, _), placements in zip(members, asked):
        if is_dtensor(tensor):
            continue
        gradient, tensor.grad = tensor.grad, None
        # Assigning .data keeps the object: every module, optimizer and closure that holds it sees it.
        tensor.data = distribute_tensor(tensor.data, mesh, placements, src_data_rank)
        if gradient is not None:
            tensor.grad = distribute_tensor(gradient.detach(), mesh, placements, src_data_rank)
    return module


def redistribute_module(module, mesh, partition=None):
    """Moves a distributed module, in place, to where distribute_module would have put it.

    The mesh may be another one of the same world. What nothing is said of becomes replicated; for what is
    there already nothing is sent. Returns the module.
    """
    members = _members(module)
    asked = [_replicated_unless(placements, mesh) for placements in _asked(members, partition)]
    for (tensor, names, _), placements in zip(members, asked):
        if not is_dtensor(tensor):
            raise UsageError("tegula: redistribute_module needs a module that is distributed\n"
                             f'  plain   "{names[0]}"\n'
                             "  hint    use distribute_module")
        _tegula.spec_asked(names[0], tensor, mesh, placements)
    for (tensor, _, _), placements in zip(members, asked):
        gradient, tensor.grad = tensor.grad, None
        tensor.data = _moved(tensor.data, mesh, placements)
        if gradient is not None:
            tensor.grad = _moved(gradient.detach(), mesh, placements)
    return module


def _moved(tensor, mesh, placements):
    if _tegula.is_placed(tensor, mesh, placements):
        return tensor
    return redistribute(tensor, mesh, placements)


def distribute_optimizer_state(optimizer):
    """Brings the state of an optimizer (momenta and the like) to where its parameters are now."""
    for parameter, state in optimizer.state.items():
        if not is_dtensor(parameter):
            continue
        where = mesh(parameter), placements(parameter)
        for name, value in state.items():
            if isinstance(value, _torch.Tensor) and value.shape == parameter.shape:
                state[name] = _moved(value, *where) if is_dtensor(value) else distribute_tensor(value, *where)
