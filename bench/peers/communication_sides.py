"""Tegula and PyTorch's DTensor behind one face: tensors placed alike, and what a rank receives.

Placements are texts here: "S(0)", "R", "P(sum)".
"""
import contextlib
import os
import re

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

# Calls that meet their neighbours along a cut dim: their all-to-all holds nothing that stays on the rank.
EXCHANGES = re.compile(r"aten::(conv|\w*pool|\w*pad|flip|roll|rot90|cat\b|stack\b|slice_backward)")


def received(kind, ranks, input_bytes):
    """Bytes that come to a rank, whatever the algorithm: the mean of the group, from the inputs of its ranks."""
    others = ranks - 1
    return {
        "all_gather": others * input_bytes,
        "all_reduce": 2 * others * input_bytes / ranks,
        "reduce_scatter": others * input_bytes / ranks,
        "all_to_all": others * input_bytes / ranks,
        "broadcast": others * input_bytes / ranks,
        "exchange": input_bytes,
        "recv": input_bytes,
        "send": 0,  # counted where it comes
        "barrier": 0,
    }[kind]


def letter_of(text):
    """"S0" of "S(0, blocks=4)"; "P" of "P(sum)" and of "M(2048)", a sum that a mask says; "R"."""
    return text[0] + text[2] if text[0] == "S" else text[0].replace("M", "P")


class Tegula:
    name = "tegula"

    def __init__(self, shape, timeout):
        import tegula
        self.tg = tegula
        self.tg.init(timeout=timeout)
        self.mesh = self.tg.init_device_mesh("cpu", shape)

    def placement(self, letter):
        if letter[0] == "S":
            return self.tg.Shard(int(letter[1:]))
        return self.tg.Replicate() if letter == "R" else self.tg.Partial("sum")

    def cut(self, tensor, placements):
        return self.tg.distribute_tensor(tensor, self.mesh, placements, src_data_rank=None)

    def from_tile(self, tile, placements, like):
        return self.tg.from_local(tile, self.mesh, placements, shape=like.shape, stride=like.stride())

    def tile(self, tensor):
        return self.tg.to_local(tensor)

    def is_placed(self, tensor):
        return isinstance(tensor, torch.Tensor) and self.tg.is_dtensor(tensor)

    def placements_of(self, tensor):
        return list(self.tg.placements(tensor))

    def text_of(self, placement):
        return str(placement)

    def moved(self, tensor, placements):
        return self.tg.redistribute(tensor, placements=placements)

    def whole(self, tensor):
        return self.tg.full_tensor(tensor)

    def switches(self, case):
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def counted(self, received_bytes):
        with self.tg.CommLog() as log:
            yield
        for entry in log.entries():
            is_exchange = entry.kind == "all_to_all" and EXCHANGES.match(entry.op)
            received_bytes.append(received("exchange" if is_exchange else entry.kind, entry.ranks, entry.bytes))


class CountCollectives(TorchDispatchMode):
    """Sees the collectives that DTensors become."""

    KINDS = {"all_gather_into_tensor": "all_gather", "all_reduce": "all_reduce", "all_reduce_": "all_reduce",
             "reduce_scatter_tensor": "reduce_scatter", "all_to_all_single": "all_to_all", "broadcast": "broadcast",
             "broadcast_": "broadcast", "allreduce_": "all_reduce", "_allgather_base_": "all_gather",
             "allgather_": "all_gather", "_reduce_scatter_base_": "reduce_scatter", "alltoall_base_": "all_to_all",
             "send": "send", "recv_": "recv", "barrier": "barrier"}
    NO_COLLECTIVES = ("wait_tensor", "_wrap_tensor_autograd", "check_for_nan")
    INPUT_IS_SECOND = ("_allgather_base_", "allgather_", "_reduce_scatter_base_", "alltoall_base_")

    def __init__(self, note):
        super().__init__()
        self.note = note
        self.is_paused = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        from torch.distributed.tensor import DTensor
        if isinstance(func, torch._ops.HigherOrderOperator):
            return func(*args, **(kwargs or {}))
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # DTensor makes other calls of it, and these come here
        if func.namespace in ("_c10d_functional", "c10d") and not self.is_paused:
            self.note_call(func._schema.name.partition("::")[2], args)
        return func(*args, **(kwargs or {}))

    def note_call(self, name, args):
        if name in self.NO_COLLECTIVES:
            return
        tensors = tree_flatten(args[1 if name in self.INPUT_IS_SECOND else 0])[0]
        self.note(self.KINDS[name], ranks_of(args), sum(t.nbytes for t in tensors))


def ranks_of(args):
    """The size of the group among a collective's arguments."""
    for arg in reversed(args):
        if isinstance(arg, str) and arg not in ("sum", "avg", "min", "max", "product"):
            return dist.distributed_c10d._resolve_process_group(arg).size()
        if isinstance(arg, dist.ProcessGroup):
            return arg.size()
        if isinstance(arg, torch.ScriptObject):  # a group as the dispatcher holds it
            return dist.ProcessGroup.unbox(arg).size()
    raise ValueError(f"a collective without a group: {args}")


class PyTorch:
    name = "PyTorch"

    def __init__(self, shape, timeout):
        import datetime

        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
        self.DTensor, self.Partial, self.Replicate, self.Shard = DTensor, Partial, Replicate, Shard
        self.distribute_tensor = distribute_tensor
        dist.init_process_group("gloo", init_method="file://" + os.environ["PEER_STORE"],
                                rank=int(os.environ["TEGULA_RANK"]), world_size=int(os.environ["TEGULA_WORLD_SIZE"]),
                                timeout=datetime.timedelta(seconds=timeout))
        self.mesh = init_device_mesh("cpu", shape)
        self.mode = None
        self.count_changed_cuts()
        self.count_agreements()
        torch.nn.functional.dropout(self.cut(torch.ones(4), [Replicate()] * len(shape)))  # its seed is agreed on once

    def count_changed_cuts(self):
        """A cut that moves to another dim is an all-to-all on a GPU; on a CPU it is gathered and cut again. Counted is
        the all-to-all."""
        from torch.distributed.tensor import placement_types
        move = placement_types.shard_dim_alltoall

        def moved(tile, gather_dim, shard_dim, mesh, axis):
            if self.mode is None:
                return move(tile, gather_dim, shard_dim, mesh, axis)
            self.mode.note("all_to_all", mesh.size(axis), tile.nbytes)
            self.mode.is_paused = True
            try:
                return move(tile, gather_dim, shard_dim, mesh, axis)
            finally:
                self.mode.is_paused = False

        placement_types.shard_dim_alltoall = moved

    def count_agreements(self):
        """Of truth values DTensor makes an all-reduce that a mode cannot see through."""
        reduce = dist.all_reduce

        def counted(tensor, *args, **kwargs):
            if self.mode is not None:
                self.mode.note("all_reduce", dist.get_world_size(), tensor.nbytes)
            with _disable_current_modes():
                return reduce(tensor, *args, **kwargs)

        dist.all_reduce = counted

    def placement(self, letter):
        if letter[0] == "S":
            return self.Shard(int(letter[1:]))
        return self.Replicate() if letter == "R" else self.Partial("sum")

    def cut(self, tensor, placements):
        return self.distribute_tensor(tensor, self.mesh, placements, src_data_rank=None)

    def from_tile(self, tile, placements, like):
        return self.DTensor.from_local(tile, self.mesh, placements, run_check=False, shape=like.shape,
                                       stride=like.stride())

    def tile(self, tensor):
        return tensor.to_local()

    def is_placed(self, tensor):
        return isinstance(tensor, self.DTensor)

    def placements_of(self, tensor):
        return list(tensor.placements)

    def text_of(self, placement):
        if placement.is_partial():
            return "P(norm)" if "Norm" in type(placement).__name__ else f"P({placement.reduce_op})"
        return str(placement).removeprefix("_")

    def moved(self, tensor, placements):
        return tensor.redistribute(placements=placements)

    def whole(self, tensor):
        return tensor.full_tensor()

    def switches(self, case):
        from torch.distributed.tensor.parallel import loss_parallel
        return loss_parallel() if case.loss_parallel else contextlib.nullcontext()

    @contextlib.contextmanager
    def counted(self, received_bytes):
        self.mode = CountCollectives(lambda *call: received_bytes.append(received(*call)))
        try:
            with self.mode:
                yield
        finally:
            self.mode = None
