"""The names of torch.distributed.tensor.debug."""

import collections
import contextlib

import torch
from torch.distributed.tensor.debug import _comm_mode as _pytorch

from .. import _tegula
from .._tegula import is_dtensor
from .._world import CommLog, is_initialized
from ._values import shown_mesh, shown_placements

__all__ = ["CommDebugMode"]


def _name_of(kind):
    """The operator that PyTorch would have called for a collective of ours; the kind itself if it has none."""
    functional, c10d = torch.ops.c10d_functional, torch.ops.c10d
    if kind == "all_to_all":
        return getattr(torch.ops._dtensor, "shard_dim_alltoall", functional.all_to_all_single)
    return {"all_reduce": functional.all_reduce, "all_gather": functional.all_gather_into_tensor,
            "reduce_scatter": functional.reduce_scatter_tensor, "broadcast": c10d.broadcast_,
            "scatter": c10d.scatter_}.get(kind, kind)


class _Modules(_pytorch._CommModeModuleTracker):
    """PyTorch's notes on the module that runs, and on the placements of parameters.

    before_another: called while the module that has run until now is still the current one.
    """

    def __init__(self, before_another):
        super().__init__()
        self._before_another = before_another

    def _fw_pre_hook(self, mod, input):
        self._before_another()
        super()._fw_pre_hook(mod, input)
        for name, parameter in mod.named_parameters(recurse=False):
            if is_dtensor(parameter):
                self.sharding_dict[f"{self.name}.{name}"] = shown_placements(parameter)

    def _fw_set_module_hook(self, mod, input, output):
        self._before_another()
        super()._fw_set_module_hook(mod, input, output)

    def _bw_hook(self, mod, output):
        self._before_another()
        super()._bw_hook(mod, output)


class CommDebugMode(_pytorch.CommDebugMode):
    """Counts the collectives of this rank while it is entered, under the names that PyTorch gives them.

    By module, forward and backward, and in PyTorch's tables, those of distributed tensors as those that the program
    calls itself. What Tegula sends may be less than what PyTorch sends. tegula.CommLog lists bytes, axes and reasons.
    """

    def __init__(self):
        self._log, self._listed, self._entered = None, 0, None
        super().__init__()
        self.advanced_module_tracker = _Modules(self._count_what_was_sent)

    def __enter__(self):
        self._log, self._listed, self._entered = None, 0, contextlib.ExitStack()
        super().__enter__()
        if is_initialized():  # without a world there are no distributed tensors
            self._log = self._entered.enter_context(CommLog())
        self._entered.enter_context(self._backward_noticed())
        return self

    def __exit__(self, *error):
        self._count_what_was_sent()
        self._entered.__exit__(*error)
        super().__exit__(*error)

    @contextlib.contextmanager
    def _backward_noticed(self):
        """What is sent before a backward pass begins is of the forward pass, what is sent until it ends is its own."""
        run = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            self._count_what_was_sent()
            try:
                return run(*args, **kwargs)
            finally:
                self._count_what_was_sent("backward")

        torch.autograd._engine_run_backward = run_backward
        try:
            yield
        finally:
            torch.autograd._engine_run_backward = run

    def _count_what_was_sent(self, phase=None):
        """Counts what the log has listed since the last call for the module that runs and those around it."""
        sent = self._log.entries()[self._listed:] if self._log is not None else []
        self._listed += len(sent)
        modules = self.advanced_module_tracker
        phase = phase or ("backward" if modules.is_bw else "forward")
        for entry in sent:
            name = _name_of(entry.kind)
            self._comm_counts[name] += 1
            for module in {modules.name, *modules.module_parents_dict[modules.name]}:
                counts = self._comm_module_counts.setdefault(
                    module, {"forward": collections.defaultdict(int), "backward": collections.defaultdict(int)})
                counts[phase][name] += 1

    # PyTorch's attributes, up to date whenever they are read.

    @property
    def comm_counts(self):
        """How many, by operator of torch.ops; those of other kinds by their own name."""
        self._count_what_was_sent()
        return self._comm_counts

    @comm_counts.setter
    def comm_counts(self, counts):
        self._comm_counts = counts

    @property
    def comm_module_counts(self):
        """{module: {"forward": counts, "backward": counts}}; "Global" has all of them."""
        self._count_what_was_sent()
        return self._comm_module_counts

    @comm_module_counts.setter
    def comm_module_counts(self, counts):
        self._comm_module_counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Notes the operator, with shapes and placements of distributed tensors among its arguments."""
        module = self.advanced_module_tracker.name
        out = super().__torch_dispatch__(func, types, args, kwargs)
        tensors = [value for value in args if isinstance(value, torch.Tensor) and is_dtensor(value)]
        if tensors:
            noted = self.comm_module_operation_counts[module]["operations_list"][-1]
            noted["input_shape"] = [tensor.shape for tensor in tensors]
            noted["input_sharding"] = [shown_placements(tensor) for tensor in tensors]
            noted["device_mesh"] = str(shown_mesh(_tegula.mesh(tensors[-1])))
        return out

    def __str__(self):
        return str(self._log)
