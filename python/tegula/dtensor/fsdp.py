"""The names of torch.distributed.fsdp that belong to fully_shard.

Each rank calls the model with its own plain samples and computes its own loss; gradients are averaged over ranks.
tegula.fully_shard does the same for distributed samples, and without hooks.
"""

import dataclasses
from typing import Optional

import torch

from .. import _tegula, _tensors, _world
from .._tegula import Replicate, Shard, UsageError
from ._ranks import ensure_world
from ._unsharded import KeepNames, ParameterGroup
from ._values import our_mesh, our_placement

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
           "register_fsdp_forward_method", "share_comm_ctx"]


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """param_dtype: of gathered parameters; reduce_dtype: that gradients travel in; output_dtype: of what forward gives."""

    param_dtype: Optional[torch.dtype] = None
    reduce_dtype: Optional[torch.dtype] = None
    output_dtype: Optional[torch.dtype] = None
    cast_forward_inputs: bool = True


@dataclasses.dataclass
class OffloadPolicy:
    """Parameters stay where they are."""


@dataclasses.dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters rest on the CPU, where they are."""

    pin_memory: bool = True


def fully_shard(module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=None,
                offload_policy=None, ignored_params=None, dp_mesh_dims=None):
    """Cuts the module's parameters along dim 0 over the mesh; of two axes the first has replicas. Returns the module.

    A module inside that is sharded already keeps its own say. reshard_after_forward=False keeps gathered parameters
    until backward. shard_placement_fn(parameter) says another Shard. A parameter that a plan has cut over another axis
    of the same mesh is cut further.
    """
    if dp_mesh_dims is not None:
        raise UsageError("tegula: fully_shard takes the mesh of the data alone\n"
                         f"  given   dp_mesh_dims={dp_mesh_dims}\n"
                         '  hint    a plan on mesh["tp"], then fully_shard(module, mesh=mesh["dp"])')
    if isinstance(module, (list, tuple)):
        return [fully_shard(one, mesh=mesh, reshard_after_forward=reshard_after_forward, mp_policy=mp_policy,
                            shard_placement_fn=shard_placement_fn, ignored_params=ignored_params) for one in module]
    if mesh is None:
        ensure_world()
        mesh = _world.init_device_mesh("cpu", (_world.size(),), mesh_dim_names=("fsdp",))
    mesh = our_mesh(mesh)
    group = ParameterGroup(mesh, mp_policy or MixedPrecisionPolicy(), keeps_whole=reshard_after_forward is False)
    _collect(module, group, {id(parameter) for parameter in ignored_params or ()})
    _cut(group, shard_placement_fn or (lambda parameter: None))
    module.__class__ = type(f"FSDP{type(module).__name__}", (FSDPModule, type(module)), {})
    module._fsdp_group = group
    module.register_forward_pre_hook(_before_forward, prepend=True, with_kwargs=True)
    module.register_forward_hook(_after_forward, always_call=True)  # after an error, too
    return module


def _collect(module, group, ignored):
    if isinstance(module, FSDPModule):
        raise UsageError("tegula: a module is fully sharded already\n"
                         f"  module  {type(module).__name__}\n  hint    call fully_shard once, blocks first")

    def visit(part):
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            if id(parameter) not in ignored:
                group.add(parameter, part, name)
        for child in part.children():
            if not isinstance(child, FSDPModule):
                visit(child)

    visit(module)


def _cut(group, placement_of):
    """Cuts the group's parameters in place, those of one dim together."""
    by_dim = {}
    for sharded in group.parameters.values():
        placement = placement_of(sharded.parameter)
        dim = 0 if placement is None else our_placement(placement).dim
        by_dim.setdefault(dim, []).append(sharded)
        _bring_to_the_mesh_of_both(sharded, group.mesh)
    # Ranks that were not seeded alike keep each their own part, as in PyTorch; replicas are the first rank's. On a slice
    # of a mesh there are other replicas besides, which have to be alike.
    source = None if group.mesh.ndim == 1 else 0
    is_slice = group.mesh.root != group.mesh
    for dim, members in sorted(by_dim.items()):
        role = [Replicate()] * (group.mesh.ndim - 1) + [Shard(dim)]
        _tegula.distribute_members([(sharded.parameter, [str(number)], role) for number, sharded in enumerate(members)
                                    if sharded.planned is None and not is_slice], group.mesh, source)
        standing = [("", str(number), sharded.parameter, "parameter") for number, sharded in enumerate(members)]
        _tegula.fully_shard_members(standing, group.mesh, [role] * 3, "even", 1, 0, "async", None, False)


def _bring_to_the_mesh_of_both(sharded, mesh):
    """A parameter that a plan has cut on a slice lies on the slice with the axes of the data besides, in place."""
    if sharded.planned is None:
        return
    planned, placements = sharded.planned
    if planned.root != mesh.root or set(planned.names) & set(mesh.names):
        raise UsageError("tegula: a plan and fully_shard need different axes of one mesh\n"
                         f"  plan    {planned}\n  mesh    {mesh}\n"
                         '  hint    one init_device_mesh, then mesh["tp"] and mesh["dp"]')
    own = dict(zip(planned.names, placements))
    both = mesh.root[[name for name in mesh.root.names if name in planned.names or name in mesh.names]]
    sharded.parameter.data = _tensors.redistribute(
        sharded.parameter.detach(), both, [own.get(name, Replicate()) for name in both.names])


def _each(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(one, change) for key, one in value.items()} if type(value) is dict else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(one, change) for one in value))
    if type(value) in (list, tuple):
        return type(value)(_each(one, change) for one in value)
    return value


def _cast(dtype):
    return lambda tensor: tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != dtype else tensor


def _before_forward(module, args, kwargs):
    group = module._fsdp_group
    group.gather()
    group.depth += 1
    if torch.is_grad_enabled() and not group.keeps_whole:
        names = KeepNames(group)
        names.__enter__()
        module.__dict__.setdefault("_fsdp_entered", []).append(names)
    if group.policy.param_dtype is not None and group.policy.cast_forward_inputs:
        args, kwargs = _each(args, _cast(group.policy.param_dtype)), _each(kwargs, _cast(group.policy.param_dtype))
    return args, kwargs


def _after_forward(module, args, output):
    entered = module.__dict__.get("_fsdp_entered")
    if entered:
        entered.pop().__exit__(None, None, None)
    group = module._fsdp_group
    group.depth = max(group.depth - 1, 0)
    if group.depth == 0:
        group.put_back()
    return output if group.policy.output_dtype is None else _each(output, _cast(group.policy.output_dtype))


class UnshardHandle:
    """What unshard(async_op=True) gives."""

    def wait(self):
        """Nothing to wait for: what is gathered is waited for when it is used."""


class FSDPModule:
    """What fully_shard makes of a module's class."""

    def _fsdp_groups(self, recurse):
        return [part._fsdp_group for part in (self.modules() if recurse else [self]) if isinstance(part, FSDPModule)]

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """While off, backward passes keep gradients; the first pass after that reduces all of them."""
        for group in self._fsdp_groups(recurse):
            group.reduces = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """As set_requires_gradient_sync, of modules with replicas."""
        for group in self._fsdp_groups(recurse):
            if group.mesh.ndim > 1:
                group.reduces = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        """False: gathered parameters are kept until backward."""
        for group in self._fsdp_groups(recurse):
            group.keeps_whole = not reshard_after_forward

    def set_gradient_divide_factor(self, factor):
        """What the sum of the ranks' gradients is divided by, instead of their number."""
        self._fsdp_group.divisor = factor

    def set_is_last_backward(self, is_last_backward):
        """Nothing to do: a pass does not wait for the next one."""

    def set_reshard_after_backward(self, reshard_after_backward, *, recurse=True):
        """Nothing to do: what is gathered for backward goes when its gradient is there."""

    def set_modules_to_forward_prefetch(self, modules):
        """Nothing to do: parameters are gathered when their module's forward begins."""

    def set_modules_to_backward_prefetch(self, modules):
        """Nothing to do: parameters are gathered when backward uses them."""

    def set_reduce_scatter_divide_factor(self, factor):
        """As set_gradient_divide_factor, which this was called before."""
        self.set_gradient_divide_factor(factor)

    def set_unshard_in_backward(self, unshard_in_backward):
        """Nothing to do: backward gathers what it uses."""

    def set_force_sum_reduction_for_comms(self, enable):
        """Nothing to do: gradients are divided, then added up."""

    def set_post_optim_event(self, event):
        """Nothing to do: parameters are gathered when they are used."""

    def set_allocate_memory_from_process_group_for_comm(self, enable):
        """Nothing to do: large results are in memory that ranks share."""

    def set_symm_mem_for_comm(self, backend="NCCL"):
        """Nothing to do: large results are in memory that ranks share."""

    def set_separate_reduce_scatter_group(self, enable=True, *, recurse=True):
        """Nothing to do: gradients are reduced asynchronously."""

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers, *, recurse=True):
        """Nothing to do: each gradient is reduced from where it is."""

    def reset_iter_state(self):
        """After an error in forward or backward: lets go of what is gathered."""
        for group in self._fsdp_groups(recurse=True):
            group.depth = 0
            group.put_back()

    def set_all_reduce_hook(self, hook, **_):
        _refuse_own_collectives("set_all_reduce_hook")

    def set_custom_all_gather(self, comm):
        _refuse_own_collectives("set_custom_all_gather")

    def set_custom_reduce_scatter(self, comm):
        _refuse_own_collectives("set_custom_reduce_scatter")

    def unshard(self, async_op=False):
        """Gathers the module's own parameters now; they stay until reshard() or the end of its forward."""
        self._fsdp_group.gather()
        return UnshardHandle() if async_op else None

    def reshard(self):
        """Lets go of what unshard() has gathered."""
        self._fsdp_group.put_back()


def _refuse_own_collectives(name):
    raise UsageError(f"tegula: {name} is not here: parameters are gathered and gradients reduced by Tegula's collectives\n"
                     "  hint    mp_policy chooses the types that they travel in")


def share_comm_ctx(modules):
    """Nothing to do: there are no streams to share."""


def register_fsdp_forward_method(module, method_name):
    """Makes another method of a fully sharded module gather parameters as its forward does."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name)

    def wrapped(*args, **kwargs):
        args, kwargs = _before_forward(module, args, kwargs)
        output = None
        try:
            output = method(*args, **kwargs)
        finally:
            output = _after_forward(module, args, output)
        return output

    setattr(module, method_name, wrapped)
