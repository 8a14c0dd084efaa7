"""The ranks of a job, and what belongs to them: meshes, groups, random numbers, the log of what is sent."""

import atexit
import datetime
import functools
import sys
import threading

import torch

from . import _mesh, _tegula
from ._tegula import CommError, UsageError, World
from ._tensor_methods import error_line

_of_process = None
_of_thread = threading.local()  # the world of a rank that is a thread


def init(backend=None, timeout=None):
    """Finds the other ranks as the launcher's environment says; alone if there is no launcher.

    backend: "shm", "gloo", "mpi"; None: what the launcher said, else shm on one host.
    timeout: how long a rank waits for another, in seconds or as a timedelta.
    Called again it makes a new world, on all ranks; meshes and tensors of the old one keep it.
    """
    global _of_process
    _mesh.forget_world()
    _of_process = World.from_env(backend or "", _duration(timeout))
    return _of_process


def imagine(ranks, rank=0):
    """One rank of a world that is only imagined: shapes, nothing is sent."""
    global _of_process
    _mesh.forget_world()
    _of_process = World.fake(ranks, rank)
    return _of_process


class _ThreadsToJoin:
    """The worlds of ranks that are threads somebody else has started; the first to come makes them all."""

    def __init__(self):
        self.lock, self.waiting = threading.Lock(), {}

    def take(self, job, ranks, rank):
        with self.lock:
            if job not in self.waiting:
                made = [None] * ranks
                _tegula.run_ranks(ranks, lambda world: made.__setitem__(world.rank, world), "", None)
                self.waiting[job] = made
            world = self.waiting[job][rank]
            self.waiting[job][rank] = None
            if not any(self.waiting[job]):
                del self.waiting[job]
            return world


_threads_to_join = _ThreadsToJoin()


def join_threads(job, ranks, rank):
    """This thread becomes a rank among threads of this process that all call this with the same name of a job."""
    _of_thread.world = _threads_to_join.take(job, ranks, rank)
    return _of_thread.world


def is_initialized():
    """Whether there is a world, so that meshes can be made."""
    return getattr(_of_thread, "world", None) is not None or _of_process is not None


@atexit.register
def _leave():
    global _of_process
    _mesh.forget_world()
    _of_process = None


def _duration(seconds):
    if seconds is None or isinstance(seconds, datetime.timedelta):
        return seconds
    return datetime.timedelta(seconds=seconds)


def this_world():
    """The world of this rank. UsageError if there is none yet."""
    world = getattr(_of_thread, "world", None) or _of_process
    if world is None:
        raise UsageError("tegula: there is no world yet\n  hint    call tegula.init() first")
    return world


def run_ranks(ranks, function, *args, backend=None, timeout=None):
    """Calls function(*args) as `ranks` ranks, each on a thread of its own, and waits for all of them.

        def body():
            mesh = tg.init_device_mesh("cpu", (tg.size(),))
            ...

        tg.run_ranks(4, body)

    For tests and notebooks: the ranks share one interpreter, whose lock they give up where they wait for each
    other. What a rank returns is in the list that this returns, by rank. If a rank throws, the calls of the
    others end with an error, and what the first one threw is thrown here.
    """
    results, errors = [None] * ranks, []

    def on_rank(world):
        _of_thread.world = world
        try:
            results[world.rank] = function(*args)
        except BaseException as error:  # C++ ends the other ranks, then it is thrown below
            errors.append((world.rank, error))
            return f"{type(error).__name__}: {error}"
        finally:
            _of_thread.world = None
        return None

    try:
        _tegula.run_ranks(ranks, on_rank, backend or "", _duration(timeout))
    except Exception:
        if not errors:
            raise
    if errors:
        rank, error = errors[0]
        if hasattr(error, "add_note"):
            error.add_note(f"on rank {rank} of {ranks}")
        raise error
    return results


def recover():
    """Makes the world usable again after an error that one rank or several met; all ranks call it.

        try:
            step()
        except Exception:
            tg.recover()              # on every rank; one that still waits for another throws first
            optimizer.zero_grad()

    Over shm and gloo, if all ranks are alive. Tensors keep their values; random numbers agree again.
    """
    error = sys.exc_info()[1]
    if error is None:
        this_world().recover()
    else:
        this_world().recover(**{"of_peer" if isinstance(error, CommError) else "own": error_line(error)})


def rank():
    """This process's place among the ranks of the job."""
    return this_world().rank


def size():
    """How many ranks the job has."""
    return this_world().size


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, ranks=()):
    """A mesh over ranks 0, 1, ... of the world, or over the ones listed, row by row.

    Axes without names are called axis0, axis1, ...
    """
    if mesh_dim_names is None:
        mesh_dim_names = [f"axis{i}" for i in range(len(mesh_shape))]
    if len(mesh_dim_names) != len(mesh_shape):
        raise UsageError(f"tegula: {len(mesh_shape)} sizes of axes, but {len(mesh_dim_names)} names\n"
                         "  hint    give one name per axis")
    return this_world().mesh(list(zip(mesh_dim_names, mesh_shape)), list(ranks), device_type)


def group(ranks=None, mesh=None, axis=None, name=""):
    """The ranks that talk: those listed, those around this rank along an axis of a mesh, or all.

        tp = tg.group(mesh=mesh, axis="tp")
        total = tp.all_reduce(x)                  # plain tensors; "sum", "avg", "max", ...
        rows = tp.all_gather_async(x, 0)          # .wait() gives the result

    Every member makes the same calls in the same order. tg.all_reduce(x, tp) and its like are the same calls
    with gradients.
    """
    if mesh is None:
        return this_world().group(ranks, name)
    if axis is None and mesh.ndim != 1:
        raise UsageError(f"tegula: a mesh with several axes needs the name of one\n  mesh    {mesh}\n  hint    group(mesh=mesh, axis=...)")
    return _tegula.world_of_mesh(mesh).group_along(mesh, mesh.names[0] if axis is None else axis)


# Random numbers


def manual_seed(seed):
    """Of the random numbers of distributed tensors; plain ones go on as they would have.

    torch.manual_seed sets both. All ranks set the same.
    """
    _tegula.manual_seed(this_world(), seed % 2**64)  # as torch's, which takes what is below 0, too


def rng_state():
    """(seed, {stream: number of draws since}); set_rng_state takes it back.

    What torch.get_rng_state does not hold: with meshes that leave ranks or axes out, what each has drawn.
    """
    return _tegula.rng_state(this_world())


def set_rng_state(state):
    seed, draws = state
    _tegula.set_rng_state(this_world(), seed, draws)


# Ranks that are threads share torch's generator. What it says of where distributed draws stand, each says for itself:
# so seeds, states and checkpoints are those of the rank that asks.

_plain_random = torch.random.manual_seed, torch.random.get_rng_state, torch.random.set_rng_state
_SEED = slice(0, 8)  # of the bytes of a generator's state


def _seed_of_thread():
    world = getattr(_of_thread, "world", None)
    return None if world is None else _tegula.thread_seed(world)


@functools.wraps(_plain_random[0])
def _manual_seed(seed):
    if _seed_of_thread() is not None:
        _tegula.set_thread_seed(_of_thread.world, int(seed) % 2**64)
    return _plain_random[0](seed)


@functools.wraps(_plain_random[1])
def _get_rng_state():
    state, seed = _plain_random[1](), _seed_of_thread()
    if seed is not None:
        state[_SEED] = torch.tensor(list(seed.to_bytes(8, sys.byteorder)), dtype=torch.uint8)
    return state


@functools.wraps(_plain_random[2])
def _set_rng_state(new_state):
    if _seed_of_thread() is None:
        return _plain_random[2](new_state)
    _tegula.set_thread_seed(_of_thread.world, int.from_bytes(bytes(new_state[_SEED].tolist()), sys.byteorder))
    new_state = new_state.clone()
    new_state[_SEED] = _plain_random[1]()[_SEED]
    return _plain_random[2](new_state)


torch.manual_seed = torch.random.manual_seed = _manual_seed
torch.get_rng_state = torch.random.get_rng_state = _get_rng_state
torch.set_rng_state = torch.random.set_rng_state = _set_rng_state


class CommLog(_tegula.CommLog):
    """Lists what this rank sends and receives while it is entered, and what for.

        with tg.CommLog() as log:
            y = model(x)
        print(log)                      # one line per collective
        sum(entry.bytes for entry in log.entries())

    Entries have a kind, axis, ranks, bytes, reduction, op and seconds.
    """

    def __init__(self):
        super().__init__(this_world())
