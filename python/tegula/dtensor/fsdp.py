"""The names of torch.distributed.fsdp that belong to fully_shard.

There each rank calls the model with its own plain samples, computes its own loss, and gradients are averaged over
ranks. So the outermost sharded module takes plain tensors as this rank's rows of one batch, gives plain ones, and
divides gradients by the number of ranks. Distributed tensors pass as they are, and then a loss is that of all samples.
"""

import torch

from .. import _modules, _tegula, _tensors, _world
from .._tegula import Replicate, Shard, UsageError, is_dtensor
from .device_mesh import ensure_world, init_device_mesh

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "fully_shard"]


class MixedPrecisionPolicy:
    def __init__(self, param_dtype=None, reduce_dtype=None, output_dtype=None, cast_forward_inputs=True):
        self.param_dtype, self.reduce_dtype, self.output_dtype = param_dtype, reduce_dtype, output_dtype
        self.cast_forward_inputs = cast_forward_inputs


class OffloadPolicy:
    pass


class CPUOffloadPolicy(OffloadPolicy):
    def __init__(self, pin_memory=True):
        self.pin_memory = pin_memory


def _refuse(what, hint):
    raise UsageError(f"tegula: fully_shard does not take {what}\n  hint    {hint}")


def fully_shard(module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=None,
                offload_policy=None, ignored_params=None):
    """Cuts the module's parameters along dim 0 over the mesh; of two axes the first has replicas. Returns the module.

    A module inside that is sharded already keeps its own say. reshard_after_forward=False keeps parameters whole
    between uses, until they are written.
    """
    if isinstance(module, (list, tuple)):
        return [fully_shard(one, mesh=mesh, reshard_after_forward=reshard_after_forward, mp_policy=mp_policy,
                            shard_placement_fn=shard_placement_fn) for one in module]
    if mp_policy is not None and (mp_policy.param_dtype or mp_policy.output_dtype):
        _refuse("another dtype for parameters", "with torch.autocast(\"cpu\", torch.bfloat16): the cast weights travel")
    if offload_policy is not None and type(offload_policy) is not OffloadPolicy:
        _refuse("an offload policy", "parameters are on the CPU")
    if ignored_params:
        _refuse("ignored parameters", "all of a module's parameters are distributed")
    if mesh is None:
        ensure_world()
        mesh = init_device_mesh("cpu", (_world.size(),), mesh_dim_names=("dp",))
    if shard_placement_fn is not None:
        _refuse("a function for placements", "tegula.fully_shard(module, mesh, roles=...) cuts other dims")
    wire = mp_policy.reduce_dtype if mp_policy is not None else None
    _modules.fully_shard(module, mesh, level=2 if reshard_after_forward is False else 3, wire=wire)
    if not isinstance(module, FSDPModule):
        module.__class__ = type(f"FSDP{type(module).__name__}", (FSDPModule, type(module)), {})
        module.register_forward_pre_hook(_take, with_kwargs=True)
        module.register_forward_hook(_give, always_call=True)  # after an error, too
    module._sharded_over = mesh
    return module


class _Scaled(torch.autograd.Function):
    """The identity; gradients are multiplied."""

    @staticmethod
    def forward(context, tensor, factor):
        context.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context, grad):
        return grad * context.factor, None


def _each(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(one, change) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_each(one, change) for one in value)
    return value


_running: list = []  # the sharded modules whose forward runs, the outermost first: (module, whether it took plain tensors)


def _rows(mesh):
    return [Shard(0)] * mesh.ndim


def _take(module, args, kwargs):
    mesh = module._sharded_over
    took = []

    def distributed(tensor):
        if is_dtensor(tensor) or _running:
            return tensor
        took.append(True)
        rows = _rows(mesh) if tensor.dim() > 0 else [Replicate()] * mesh.ndim
        return _tensors.from_local(tensor, mesh, rows)

    args, kwargs = _each(args, distributed), _each(kwargs, distributed)
    _running.append((module, bool(took)))
    return args, kwargs


def _give(module, args, output):
    if not _running or _running[-1][0] is not module:
        return output  # it did not get as far as that
    _, took_plain = _running.pop()
    if not took_plain:
        return output
    mesh = module._sharded_over

    def local(tensor):
        if not is_dtensor(tensor):
            return tensor
        if tensor.dim() == 0:
            return _tensors.full_tensor(tensor)
        placed = _tensors.redistribute(tensor, mesh, _rows(mesh))
        return _Scaled.apply(_tensors.to_local(placed), 1.0 / mesh.size())

    return _each(output, local)


class FSDPModule:
    """What fully_shard makes of a module's class."""

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """While off, backward passes leave gradients owed; the first pass after that pays for all of them."""
        word = "async" if requires_gradient_sync else "hold"
        over = ", ".join(f"{word} over {axis}" for axis in self._sharded_over.mesh_dim_names)
        for parameter in self.parameters(recurse=recurse):
            _tegula.set_gradient_policy(parameter, f"{over}, else now", True)

    def set_is_last_backward(self, is_last_backward):
        pass

    def unshard(self, async_op=False):
        """Nothing to do: parameters are gathered when they are used."""

    def reshard(self):
        """Nothing to do: parameters are cut at rest."""
