"""How a fully sharded module sees its parameters while its forward runs: whole, as plain tensors.

At rest a parameter is cut over the mesh of the data. Before the forward of the module that it belongs to, it is gathered
and stands in its place; after it the shard stands there again. Where a plan has cut it over another axis, what stands
there meanwhile is distributed over that axis alone.

    shard on (dp, tp) --gather over dp--> this rank's part of the plan --forward, backward--> its gradient
    gradient / ranks  --reduce-scatter over dp--> gradient of the shard

Autograd would keep gathered parameters until backward. Instead it keeps the name of the parameter, and the first
backward node that needs one gathers it again; when its gradient is there, it is let go.
"""

import weakref

import torch

from .. import _tegula, _tensors
from .._tegula import Partial, Replicate, UsageError, is_dtensor


class ShardedParameter:
    """One parameter, where it stands, and how it is gathered."""

    def __init__(self, parameter, mesh):
        self.parameter, self.mesh = parameter, mesh
        self.planned = (_tegula.mesh(parameter), _tegula.placements(parameter)) if is_dtensor(parameter) else None
        self.stands_in = []  # (module, name)
        self.gathered = None  # while the forward runs, or backward has gathered it again
        self.held = None  # a gradient that is not reduced yet

    def _placed(self, over_data):
        """Placements on the parameter's mesh: these over the axes of the data, its own over the others."""
        axes = _tegula.mesh(self.parameter).names
        return [over_data if axis in self.mesh.names else own
                for axis, own in zip(axes, _tegula.placements(self.parameter))]

    def gather(self, dtype):
        """This rank's part of the plan; all of it if there is none. No gradients."""
        shard = self.parameter.detach()
        whole = _tensors.redistribute(shard if dtype is None else shard.to(dtype), None, self._placed(Replicate()))
        local = _tensors.to_local(whole)
        if self.planned is None:
            return local
        return _tensors.from_local(local, *self.planned, list(whole.shape), list(whole.stride()), run_check=False)

    def reduce(self, gradient, divisor, dtype):
        """The gradient of the shard, of the gradients that the ranks have for what they gathered."""
        if self.planned is not None:
            gradient = _tensors.to_local(_tensors.redistribute(gradient, *self.planned))
        own = self.parameter.dtype
        gradient = (gradient if dtype is None else gradient.to(dtype)) / divisor
        owed = _tensors.from_local(gradient, _tegula.mesh(self.parameter), self._placed(Partial()),
                                   list(self.parameter.shape), list(self.parameter.stride()), run_check=False)
        return _tensors.redistribute(owed, None, _tegula.placements(self.parameter), async_op=True).to(own)


class _Held:
    """The gradients of all groups that no backward pass has reduced yet."""

    groups: list = []  # weak references, in the order in which all ranks made them
    is_queued = False

    @classmethod
    def reduce(cls):
        cls.is_queued = False
        for group in [made() for made in cls.groups]:
            for sharded in group.parameters.values() if group is not None and group.reduces else ():
                if sharded.held is not None:
                    gradient = sharded.reduce(sharded.held, group.divisor, group.policy.reduce_dtype)
                    sharded.held = None
                    before = sharded.parameter.grad
                    sharded.parameter.grad = gradient if before is None else before + gradient
        cls.groups = [made for made in cls.groups if made() is not None]


class Gathered(torch.autograd.Function):
    """A parameter as its module's forward sees it."""

    @staticmethod
    def forward(ctx, shard, sharded, group):
        ctx.sharded, ctx.group = sharded, group
        return sharded.gather(group.policy.param_dtype)

    @staticmethod
    def backward(ctx, gradient):
        sharded, group = ctx.sharded, ctx.group
        sharded.gathered = None
        if sharded.held is not None:
            gradient, sharded.held = gradient + sharded.held, None
        if not group.reduces:
            sharded.held = gradient
            return None, None, None
        group.reduce_what_is_held_at_the_end()
        return sharded.reduce(gradient, group.divisor, group.policy.reduce_dtype), None, None


class ParameterGroup:
    """The parameters of one fully sharded module, but for those of fully sharded modules inside."""

    def __init__(self, mesh, policy, keeps_whole):
        self.mesh, self.policy, self.keeps_whole = mesh, policy, keeps_whole
        self.parameters = {}  # by the parameter's id
        self.reduces, self.divisor = True, mesh.size()
        self.is_swapped, self.depth = False, 0  # of the module's methods that run, one inside the other
        _Held.groups.append(weakref.ref(self))

    def add(self, parameter, module, name):
        sharded = self.parameters.get(id(parameter)) or ShardedParameter(parameter, self.mesh)
        self.parameters[id(parameter)] = sharded
        sharded.stands_in.append((module, name))

    def gather(self):
        """Puts gathered parameters where the shards stand."""
        if self.is_swapped:
            return
        for sharded in self.parameters.values():
            sharded.gathered = Gathered.apply(sharded.parameter, sharded, self)
            self._put(sharded, sharded.gathered)
        self.is_swapped = True

    def reduce_what_is_held_at_the_end(self):
        """Of the backward pass that runs: it may not reach a parameter that an earlier one has left a gradient of."""
        if not _Held.is_queued:
            _Held.is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(_Held.reduce)

    def put_back(self):
        if not self.is_swapped:
            return
        for sharded in self.parameters.values():
            self._put(sharded, sharded.parameter)
            sharded.gathered = None
        self.is_swapped = False

    def _put(self, sharded, tensor):
        for module, name in sharded.stands_in:
            module._parameters[name] = tensor
            if hasattr(module, "_flat_weights_names"):  # recurrent modules list their weights besides
                module._flat_weights = [getattr(module, one, None) for one in module._flat_weights_names]


class _Kept:
    """What autograd keeps of a gathered parameter: which, and which view of it."""

    def __init__(self, sharded, group, tensor):
        self.sharded, self.group = sharded, group
        self.version = sharded.parameter._version
        tile = _tensors.to_local(tensor) if is_dtensor(tensor) else tensor
        self.view = tile.size(), tile.stride(), tile.storage_offset()
        self.spec = (_tegula.mesh(tensor), _tegula.placements(tensor), list(tensor.shape), list(tensor.stride())) \
            if is_dtensor(tensor) else None

    def again(self):
        if self.sharded.parameter._version != self.version:
            raise UsageError("tegula: a fully sharded parameter was written between forward and backward\n"
                             "  hint    call optimizer.step() after backward")
        if self.sharded.gathered is None:
            self.sharded.gathered = self.sharded.gather(self.group.policy.param_dtype)
        gathered = self.sharded.gathered.detach()
        tile = (_tensors.to_local(gathered) if is_dtensor(gathered) else gathered).as_strided(*self.view)
        if self.spec is None:
            return tile
        mesh, placements, shape, stride = self.spec
        return _tensors.from_local(tile, mesh, placements, shape, stride, run_check=False)


class _Passed:
    """What another pair of hooks, that was there before, has made of a tensor."""

    def __init__(self, packed):
        self.packed = packed


def _place_in_memory(tensor):
    return (_tensors.to_local(tensor) if is_dtensor(tensor) else tensor).untyped_storage().data_ptr()


class KeepNames(torch.autograd.graph.saved_tensors_hooks):
    """While it is entered, autograd keeps names of the group's gathered parameters instead of these."""

    def __init__(self, group):
        before = torch._C._autograd._top_saved_tensors_default_hooks(False)
        at = {_place_in_memory(sharded.gathered.detach()): sharded for sharded in group.parameters.values()
              if sharded.gathered is not None and sharded.gathered.numel()}

        def pack(tensor):
            known = tensor.layout == torch.strided and tensor.device.type != "meta"
            sharded = at.get(_place_in_memory(tensor.detach())) if known else None
            if sharded is not None:
                return _Kept(sharded, group, tensor.detach())
            return tensor if before is None else _Passed(before[0](tensor))

        def unpack(packed):
            if isinstance(packed, _Kept):
                return packed.again()
            return before[1](packed.packed) if isinstance(packed, _Passed) else packed

        super().__init__(pack, unpack)
