"""The names of torch.distributed.tensor.parallel: layers that are split over a mesh, each by itself.

A style places the parameters of one module and hooks its inputs and outputs, plain or distributed. Where the
parameters go is what tegula's own styles say. tegula.parallelize_module does without hooks: there all of a model is
distributed, and sharding propagation places the activations.
"""

import fnmatch
import functools
import warnings
from abc import ABC, abstractmethod

import torch

from .. import _modules, _tegula, _tensors
from .._mesh import current_mesh
from .._tegula import Replicate, Shard, StyledParameter, UsageError, implicit_replication, is_dtensor
from ._api import distribute_module, from_local

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
    "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module",
]


class ParallelStyle(ABC):
    """How a module is split; yours overrides _apply(module, device_mesh) and returns the module."""

    src_data_rank = 0

    @abstractmethod
    def _apply(self, module, device_mesh):
        ...

    def _place_parameters(self, style, name, module, mesh):
        """Places the module's own parameters as a style of tegula's says."""
        is_table = isinstance(module, torch.nn.Embedding)
        members = [(parameter, [own], [style.place(StyledParameter(own, parameter, is_table, mesh.size()))])
                   for own, parameter in module.named_parameters(recurse=False)]
        _tegula.distribute_members(members, mesh, self.src_data_rank)


def _brought(value, mesh, layout, desired):
    """A tensor, distributed as the layout says if it is plain, brought to the desired one."""
    if not is_dtensor(value):
        value = from_local(value, mesh, [layout])
    return _tensors.redistribute(value, _tegula.mesh(value), [desired], async_op=True)


def _let_go(value, use_local):
    return _tensors.to_local(value) if use_local and is_dtensor(value) else value


class _LayerStyle(ParallelStyle):
    """One input, the first, and one output."""

    def __init__(self, style, input_layouts, output_layouts, use_local_output):
        self._style = _modules.style_named(style)
        self.input_layouts, self.output_layouts, self.use_local_output = input_layouts, output_layouts, use_local_output

    def _desired_input(self, module):
        raise NotImplementedError

    def _prepare_input(self, desired, module, inputs, mesh):
        return (_brought(inputs[0], mesh, self.input_layouts[0], desired), *inputs[1:])

    def _prepare_output(self, module, output, mesh):
        output = _tensors.redistribute(output, mesh, list(self.output_layouts), async_op=True)
        return _let_go(output, self.use_local_output)

    def _apply(self, module, device_mesh):
        if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            raise UsageError(f"tegula: {type(self).__name__} is for Linear and Embedding\n"
                             f"  module  {type(module).__name__}\n"
                             "  hint    tegula.parallelize_module takes any module, and styles of your own")
        return distribute_module(module, device_mesh, functools.partial(self._place_parameters, self._style),
                                 functools.partial(self._prepare_input, self._desired_input(module)),
                                 self._prepare_output)


class ColwiseParallel(_LayerStyle):
    """Each rank computes some of a layer's output features."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__("colwise", (input_layouts or Replicate(),), (output_layouts or Shard(-1),), use_local_output)

    def _desired_input(self, module):
        return Replicate()


class RowwiseParallel(_LayerStyle):
    """Each rank has some of a layer's input features, or of an embedding's rows; outputs are added up."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__("rowwise", (input_layouts or Shard(-1),), (output_layouts or Replicate(),), use_local_output)

    def _desired_input(self, module):
        return Replicate() if isinstance(module, torch.nn.Embedding) else Shard(-1)


class SequenceParallel(ParallelStyle):
    """Parameters are replicated, activations cut along the sequence."""

    def __init__(self, *, sequence_dim=1, use_local_output=False):
        self.sequence_sharding, self.use_local_output = (Shard(sequence_dim),), use_local_output

    def _apply(self, module, device_mesh):
        cut = self.sequence_sharding[0]
        return distribute_module(
            module, device_mesh, functools.partial(self._place_parameters, _modules.Sequence()),
            lambda part, inputs, mesh: (_brought(inputs[0], mesh, cut, cut), *inputs[1:]),
            lambda part, output, mesh: _let_go(output, self.use_local_output))


def _listed(layouts):
    return (layouts,) if layouts is None or not isinstance(layouts, (tuple, list)) else tuple(layouts)


def _refuse_lengths(what, ours, theirs):
    if len(ours) != len(theirs):
        raise UsageError(f"tegula: {what} differ in number\n  counts  {len(ours)} and {len(theirs)}\n"
                         "  hint    give one layout per value, None for those that stay")


def _prepared(values, mesh, layouts, desired, use_local):
    """Each value that has a layout, brought to the desired one."""
    return tuple(value if layout is None or not isinstance(value, torch.Tensor) else
                 _let_go(_brought(value, mesh, layout, wanted or layout), use_local)
                 for value, layout, wanted in zip(values, layouts, desired))


class PrepareModuleInputOutput(ParallelStyle):
    """Brings a module's inputs and outputs from one layout to another; its parameters stay as they are."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None,
                 desired_input_kwarg_layouts=None, use_local_input=False, output_layouts=None,
                 desired_output_layouts=None, use_local_output=True):
        self.input_layouts = None if input_layouts is None else _listed(input_layouts)
        self.desired_input_layouts = None if desired_input_layouts is None else _listed(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_input = use_local_input
        self.output_layouts = None if output_layouts is None else _listed(output_layouts)
        self.desired_output_layouts = None if desired_output_layouts is None else _listed(desired_output_layouts)
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            _refuse_lengths("input_layouts and desired_input_layouts", self.input_layouts, self.desired_input_layouts or ())
        _refuse_lengths("input_kwarg_layouts and desired_input_kwarg_layouts", self.input_kwarg_layouts,
                        self.desired_input_kwarg_layouts)
        if self.output_layouts is not None:
            _refuse_lengths("output_layouts and desired_output_layouts", self.output_layouts,
                            self.desired_output_layouts or ())

    def _prepare_input(self, mesh, module, inputs, kwargs):
        if self.input_layouts is not None:
            _refuse_lengths("the inputs of the module and input_layouts", inputs, self.input_layouts)
            inputs = _prepared(inputs, mesh, self.input_layouts, self.desired_input_layouts, self.use_local_input)
        names = [name for name in kwargs if name in self.input_kwarg_layouts]
        moved = _prepared([kwargs[name] for name in names], mesh, [self.input_kwarg_layouts[name] for name in names],
                          [self.desired_input_kwarg_layouts.get(name) for name in names], self.use_local_input)
        return inputs, {**kwargs, **dict(zip(names, moved))}

    def _prepare_output(self, mesh, module, inputs, output):
        values = _listed(output)
        _refuse_lengths("the outputs of the module and output_layouts", values, self.output_layouts)
        values = _prepared(values, mesh, self.output_layouts, self.desired_output_layouts, self.use_local_output)
        return values if isinstance(output, (tuple, list)) else values[0]

    def _apply(self, module, device_mesh):
        if self.input_layouts is not None or self.input_kwarg_layouts:
            module.register_forward_pre_hook(functools.partial(self._prepare_input, device_mesh), with_kwargs=True)
        if self.output_layouts is not None:
            module.register_forward_hook(functools.partial(self._prepare_output, device_mesh))
        return module


class PrepareModuleInput(PrepareModuleInputOutput):
    """Brings a module's inputs from one layout to another."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None,
                 desired_input_kwarg_layouts=None, use_local_output=False):
        super().__init__(input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
                         input_kwarg_layouts=input_kwarg_layouts,
                         desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_input=use_local_output)


class PrepareModuleOutput(PrepareModuleInputOutput):
    """Brings a module's outputs from one layout to another."""

    def __init__(self, *, output_layouts, desired_output_layouts, use_local_output=True):
        super().__init__(output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
                         use_local_output=use_local_output)


def _matching(module, pattern):
    """The submodules whose path matches, part by part; "": the module itself."""
    parts = pattern.split(".") if pattern else []
    for path, submodule in module.named_modules():
        names = path.split(".") if path else []
        if len(names) == len(parts) and all(map(fnmatch.fnmatch, names, parts)):
            yield submodule


def parallelize_module(module, device_mesh=None, parallelize_plan=None, *, src_data_rank=0):
    """Applies a style to the module, or styles to its submodules by patterns of their paths."""
    mesh = device_mesh or current_mesh()
    if mesh.ndim != 1:
        raise UsageError(f"tegula: a plan is about one axis\n  mesh    {mesh}\n  hint    slice it: mesh[\"tp\"]")
    if parallelize_plan is None:
        warnings.warn("tegula: parallelize_module without a plan does nothing", stacklevel=2)
        return module
    plan = {"": parallelize_plan} if isinstance(parallelize_plan, ParallelStyle) else parallelize_plan
    for pattern, style in plan.items():
        submodules = list(_matching(module, pattern))
        if not submodules:
            warnings.warn(f'tegula: no submodule matches "{pattern}" of the plan', stacklevel=2)
        style.src_data_rank = src_data_rank
        for submodule in submodules:
            style._apply(submodule, mesh)
    return module


def loss_parallel():
    """Here cross entropy of logits that are cut along the classes is computed on the tiles anyway.

    What the context does: plain targets count as replicated.
    """
    return implicit_replication()
