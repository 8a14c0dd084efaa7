"""DTensor, and how plain tensors and modules become distributed, in PyTorch's words."""

import warnings

import torch
import torch.utils._python_dispatch

from .. import _compilers, _modules, _tegula, _tensors
from .._tegula import MaskPartial, Partial, Replicate, Shard, UsageError, is_dtensor
from .._tensor_methods import OfDTensors
from ._values import our_mesh, our_placements, placements_of_spec, shown_mesh, shown_placements, shown_spec

__all__ = ["DTensor", "distribute_module", "distribute_tensor", "_shard_tensor"]


class _PlacementType(type):
    def __instancecheck__(cls, value):
        return isinstance(value, (Replicate, Shard, Partial, MaskPartial))


class Placement(metaclass=_PlacementType):
    """What isinstance(p, Placement) asks for."""


def _is_distributed(value):
    return isinstance(value, torch.Tensor) and is_dtensor(value)


# What tensors have


def _of_gradients(placements, mesh):
    return None if placements is None else our_placements(placements, mesh)


def from_local(local_tensor, device_mesh=None, placements=None, *, run_check=False, shape=None, stride=None,
               grad_placements=None):
    """The tiles that the ranks hold, as one tensor.

    run_check: send the tiles' sizes around, name the ranks that disagree; without it nothing is sent, and tiles of
    different sizes need `shape` and `stride`.
    """
    if _is_distributed(local_tensor):
        raise UsageError("tegula: the local_tensor argument only accepts torch.Tensor, and this one is distributed\n"
                         f"  tensor  {_tegula.spec(local_tensor)}\n  hint    give its to_local()")
    if (shape is None) != (stride is None):
        raise UsageError("tegula: the shape of a whole says nothing without its stride, nor the other way round\n"
                         f"  shape   {shape}\n  stride  {stride}\n"
                         "  hint    Please pass both shape and stride at the same time.")
    mesh = our_mesh(device_mesh)
    placements, local_tensor = our_placements(placements, mesh), _plain(local_tensor)
    if shape is None and not run_check:
        shape, stride = _whole_of_equal_tiles(local_tensor, mesh, placements)
    return _tensors.from_local(local_tensor, mesh, placements, shape, stride, run_check,
                               _of_gradients(grad_placements, mesh))


def _plain(tensor):
    """A tensor that has memory: what a functional collective gives is waited for. UsageError for other subclasses."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    if isinstance(tensor, AsyncCollectiveTensor):
        return tensor.wait()
    if isinstance(tensor, torch._subclasses.FakeTensor):
        _compilers.refuse(f"of a tile of {list(tensor.shape)} without data")
    if torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor):
        raise UsageError("tegula: a tile is a plain tensor, and this is a subclass with operators of its own\n"
                         f"  tensor  {type(tensor).__name__}\n  hint    give what it holds")
    return tensor


def _whole_of_equal_tiles(tile, mesh, placements):
    """(shape, stride) of the whole tensor if all ranks have such a tile."""
    shape, stride = list(tile.shape), list(tile.stride())
    for placement, size in zip(placements, mesh.shape):
        if placement.is_shard() and -len(shape) <= placement.dim < len(shape):
            dim = placement.dim % len(shape)
            shape[dim] *= size
            stride = [s * size if k != dim and s >= stride[dim] else s for k, s in enumerate(stride)]
    return shape, stride


def to_local(self, *, grad_placements=None):
    """This rank's tile; shares memory with the tensor. Differentiable. That of a Parameter counts as one."""
    tile = _tensors.to_local(self, _of_gradients(grad_placements, _tegula.mesh(self)))
    if type(self) is torch.nn.Parameter:
        tile._is_param = True
    return tile


def full_tensor(self, *, grad_placements=None):
    """The whole tensor, plain, on every rank of the mesh. Differentiable."""
    return _tensors.full_tensor(self, _of_gradients(grad_placements, _tegula.mesh(self)))


def redistribute(self, device_mesh=None, placements=None, *, async_op=False, forward_dtype=None, backward_dtype=None):
    """The same tensor placed otherwise. Differentiable.

    forward_dtype: the dtype that it is sent in and the result has. backward_dtype: the one that the gradient is
    sent in; None: the tensor's. The gradient has the tensor's dtype.
    """
    if placements is None:
        raise UsageError("tegula: redistribute needs placements\n  hint    x.redistribute(placements=[Replicate()])")
    mesh = _tegula.mesh(self) if device_mesh is None else our_mesh(device_mesh)
    placements = our_placements(placements, mesh)
    if forward_dtype is None and backward_dtype is None:
        return _tensors.redistribute(self, mesh, placements, async_op)
    return _RedistributeIn.apply(self, mesh, placements, async_op, forward_dtype or self.dtype,
                                 backward_dtype or self.dtype)


class _RedistributeIn(torch.autograd.Function):
    """A move in other dtypes than the tensor's, one each way."""

    @staticmethod
    def forward(ctx, tensor, mesh, placements, async_op, forward_dtype, backward_dtype):
        ctx.back = _tegula.mesh(tensor), [Replicate() if p.is_partial() else p for p in _tegula.placements(tensor)]
        ctx.dtypes = backward_dtype, tensor.dtype
        return _tensors.redistribute(tensor.detach().to(forward_dtype), mesh, placements, async_op)

    @staticmethod
    def backward(ctx, gradient):
        sent, own = ctx.dtypes
        return _tensors.redistribute(gradient.to(sent), *ctx.back).to(own), None, None, None, None, None


# DTensor itself


def _of_spec(tile, spec):
    return _tensors.from_local(tile, our_mesh(spec.mesh), placements_of_spec(spec), list(spec.tensor_meta.shape),
                               list(spec.tensor_meta.stride), run_check=False)


def _set_spec(tensor, spec):
    """Another meaning of the tile, which stays."""
    tensor.data = _of_spec(_tensors.to_local(tensor.detach()), spec)


class _DTensorType(type):
    def __new__(mcs, name, bases, members):
        if bases:
            raise UsageError(f"tegula: {name} cannot be a subclass of DTensor: a distributed tensor is a torch.Tensor "
                             "of C++ here\n  hint    hold a DTensor in a class of your own")
        return super().__new__(mcs, name, bases, members)

    def __instancecheck__(cls, value):
        return _is_distributed(value)

    def __call__(cls, local_tensor, spec, *, requires_grad=False):
        if local_tensor.requires_grad and not requires_grad:
            warnings.warn("To construct a DTensor, give local_tensor.detach(), or requires_grad=True: gradients do not "
                          "reach the local tensor", stacklevel=2)
        return _of_spec(local_tensor.detach(), spec).requires_grad_(requires_grad)


class DTensor(metaclass=_DTensorType):
    """What isinstance(x, DTensor) asks for. The tensors themselves are of torch.Tensor, or Parameters."""

    from_local = staticmethod(from_local)
    to_local = staticmethod(to_local)
    full_tensor = staticmethod(full_tensor)
    redistribute = staticmethod(redistribute)


def _install():
    for method in (to_local, full_tensor, redistribute):
        setattr(torch.Tensor, method.__name__, OfDTensors(method.__name__, method.__get__))
    torch.Tensor._spec = OfDTensors("_spec", shown_spec, _set_spec)
    for name, get in (("placements", shown_placements),
                      ("device_mesh", lambda tensor: shown_mesh(_tegula.mesh(tensor))),
                      ("_local_tensor", torch.no_grad()(_tensors.to_local))):
        setattr(torch.Tensor, name, OfDTensors(name, get))


_install()


# How they come to be


def _place_of(rank_along_each_axis, mesh):
    """A place in mesh.ranks, where PyTorch gives one number for all axes."""
    place = 0
    for size in mesh.shape:
        place = place * size + rank_along_each_axis
    return place


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """A plain tensor, distributed; the data of the rank that is at src_data_rank along every axis counts.

    A tensor that is placed so already is returned as it is.
    """
    mesh = our_mesh(device_mesh)
    placements = our_placements(placements, mesh)
    if is_dtensor(tensor):
        placed = [Shard(p.dim + tensor.ndim) if p.is_shard() and p.dim < 0 else p for p in placements]
        if (_tegula.mesh(tensor), list(_tegula.placements(tensor))) == (mesh, placed):
            return tensor
        other = "placements" if _tegula.mesh(tensor) == mesh else "device mesh"
        raise UsageError(f"tegula: a tensor is distributed already, and distribute_tensor does not move it to a different {other}\n"
                         f"  tensor  {_tegula.spec(tensor)}\n  asked   {placements} on {mesh}\n  hint    use redistribute")
    tensor = _plain(tensor)
    source = None if src_data_rank is None else _place_of(src_data_rank, mesh)
    return _tensors.distribute_tensor(tensor, mesh, placements, source)


def _shard_tensor(full_tensor, placements, device_mesh=None):
    """A tensor that every rank has alike, distributed; nothing is sent."""
    return distribute_tensor(full_tensor, device_mesh, placements, src_data_rank=None)


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Makes a module's parameters and buffers distributed, and says what happens to its inputs and outputs.

    partition_fn(name, submodule, mesh) is called for every submodule; what it leaves plain is replicated, with
    the values of the mesh's first rank. input_fn(module, inputs, mesh), output_fn(module, outputs, mesh).
    """
    mesh = our_mesh(device_mesh)
    if partition_fn is not None:
        for name, submodule in module.named_modules():
            partition_fn(name, submodule, mesh)
    _modules.distribute_module(module, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda part, inputs: input_fn(part, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda part, inputs, outputs: output_fn(part, outputs, mesh))
    return module
