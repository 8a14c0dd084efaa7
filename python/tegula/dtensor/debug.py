"""The names of torch.distributed.tensor.debug."""

import collections
import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._world import CommLog, is_initialized

__all__ = ["CommDebugMode"]


def _name_of(kind):
    """The operator that PyTorch would have called for a collective of ours; the kind itself if it has none."""
    functional, c10d = torch.ops.c10d_functional, torch.ops.c10d
    if kind == "all_to_all":
        return getattr(torch.ops._dtensor, "shard_dim_alltoall", functional.all_to_all_single)
    return {"all_reduce": functional.all_reduce, "all_gather": functional.all_gather_into_tensor,
            "reduce_scatter": functional.reduce_scatter_tensor, "broadcast": c10d.broadcast_,
            "scatter": c10d.scatter_}.get(kind, kind)


class _OfTorch(TorchDispatchMode):
    """Lists the collectives that the program itself calls, on plain tensors."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        packet = function._overloadpacket
        space, _, name = packet._qualified_op_name.partition("::")
        is_collective = not name.startswith("_") and name != "wait_tensor"
        if is_collective and space in ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"):
            self.note(packet if space == "c10d" else getattr(torch.ops.c10d_functional, name, packet))
        return function(*args, **(kwargs or {}))


class CommDebugMode:
    """Counts the collectives of this rank while it is entered, under the names that PyTorch gives them.

    What Tegula sends may be less than what PyTorch sends. tegula.CommLog lists bytes, axes and reasons, too.
    """

    def __init__(self):
        self._begin()

    def _begin(self):
        self._log, self._entered = None, None
        self._of_torch = {"forward": [], "backward": []}
        self._in_backward = []  # ranges of entries of the log

    def __enter__(self):
        self._begin()
        self._entered = contextlib.ExitStack()
        if is_initialized():  # without a world there are no distributed tensors
            self._log = self._entered.enter_context(CommLog())
        self._entered.enter_context(self._backward_noticed())
        self._entered.enter_context(_OfTorch(lambda name: self._of_torch[self._phase()].append(name)))
        return self

    def __exit__(self, *error):
        self._entered.__exit__(*error)

    @contextlib.contextmanager
    def _backward_noticed(self):
        run = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            begin = len(self._entries())
            try:
                return run(*args, **kwargs)
            finally:
                self._in_backward.append(range(begin, len(self._entries())))

        torch.autograd._engine_run_backward = run_backward
        try:
            yield
        finally:
            torch.autograd._engine_run_backward = run

    def _entries(self):
        return self._log.entries() if self._log is not None else []

    @staticmethod
    def _phase():
        return "forward" if torch._C._current_graph_task_id() == -1 else "backward"

    @property
    def comm_module_counts(self):
        """{"Global": {"forward": counts, "backward": counts}}; modules are not told apart."""
        counts = {phase: collections.Counter(names) for phase, names in self._of_torch.items()}
        for place, entry in enumerate(self._entries()):
            phase = "backward" if any(place in entries for entries in self._in_backward) else "forward"
            counts[phase][_name_of(entry.kind)] += 1
        return {"Global": counts}

    def get_comm_counts(self):
        """How many, by operator of torch.ops; those of other kinds by their own name."""
        both = self.comm_module_counts["Global"]
        return collections.defaultdict(int, both["forward"] + both["backward"])

    comm_counts = property(get_comm_counts)

    def get_total_counts(self):
        return sum(self.get_comm_counts().values())

    def __str__(self):
        return str(self._log)
