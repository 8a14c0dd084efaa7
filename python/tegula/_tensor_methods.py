"""Methods that torch.Tensor does not bring to an operator: they read memory, which a distributed tensor lacks.

Importing tegula puts these in front of torch's own, which plain tensors still meet. torch.save looks for
distributed tensors before it opens, and so empties, the file. A backward pass that fails is counted, so that ranks
in which it did not learn of it.
"""

import copy as _copy
import functools as _functools
import pickle as _pickle

import torch as _torch

from . import _tegula


def _for_dtensors(function):
    """Puts the function in front of torch.Tensor's method of this name, for distributed tensors. Returns that."""
    plain = getattr(_torch.Tensor, function.__name__)
    setattr(_torch.Tensor, function.__name__, _tegula.forked_method(function, plain))
    return plain


def _refused(sentence, tensor, hint):
    return _tegula.UsageError(f"tegula: {sentence}\n  tensor  {_tegula.spec(tensor)}\n  hint    {hint}")


class OfDTensors:
    """An attribute that distributed tensors have and others lack: these may be given one of the same name."""

    def __init__(self, name, get, set=None):
        self.name, self.get, self.set = name, get, set

    def __get__(self, tensor, owner=None):
        if tensor is None:
            return self
        if _tegula.is_dtensor(tensor):
            return self.get(tensor)
        if self.name in tensor.__dict__:
            return tensor.__dict__[self.name]
        raise AttributeError(f"'{owner.__name__}' object has no attribute '{self.name}'")

    def __set__(self, tensor, value):
        if _tegula.is_dtensor(tensor) and self.set is not None:
            return self.set(tensor, value)
        if _tegula.is_dtensor(tensor):
            raise _refused(f"the attribute {self.name} of a distributed tensor cannot be set", tensor,
                           "tegula.to_local(x).copy_(...) writes this rank's tile, x.data = y replaces all of it")
        tensor.__dict__[self.name] = value

    def __delete__(self, tensor):
        if tensor.__dict__.pop(self.name, self) is self:
            raise AttributeError(self.name)


# Text


@_for_dtensors
def __repr__(self, *, tensor_contents=None):
    return _tegula.show(self)


def __format__(self, format_spec):
    # The value of what is owed or cut is known to no rank alone, and {x} may be on one rank's way only.
    if format_spec or _tegula.holds_values(self):
        return _plain_format(self, format_spec)
    return repr(self)


_plain_format = _for_dtensors(__format__)


# Values


@_for_dtensors
def tolist(self):
    return _tegula.full_tensor(self.detach(), None).tolist()


@_for_dtensors
def numpy(self, *, force=False):
    raise _refused("a distributed tensor has no memory that numpy could share", self,
                   "all ranks: tegula.full_tensor(x).numpy(); this rank's tile: tegula.to_local(x).numpy()")


@_for_dtensors
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, **options):
    dtype = self.dtype if dtype is None else dtype
    if device is not None and _torch.device(device) != self.device:
        return _torch.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad, **options)
    if isinstance(data, _torch.Tensor) and _tegula.is_dtensor(data):
        return data.detach().clone().to(dtype).requires_grad_(requires_grad)
    values = _torch.tensor(data, dtype=dtype)
    with _torch.no_grad(), _tegula.implicit_replication():
        made = self.new_empty(values.shape, dtype=dtype).copy_(values)
    return made.requires_grad_(requires_grad)


@_for_dtensors
def new(self, *sizes, **options):
    if len(sizes) == 1 and isinstance(sizes[0], _torch.Size):
        sizes = sizes[0]
    elif len(sizes) == 1 and not isinstance(sizes[0], int):
        return self.new_tensor(sizes[0], **options)
    return self.new_empty(tuple(sizes) or (0,), **options)


# Backward


def _counting_failures(run):
    @_functools.wraps(run)
    def run_backward(outputs, *args, **kwargs):
        try:
            return run(outputs, *args, **kwargs)
        except BaseException as error:  # what a hook throws, or a function of the user's
            for output in outputs:
                if isinstance(output, _torch.Tensor) and _tegula.is_dtensor(output):
                    _tegula.note_error(output, f"backward: {error_line(error)}")
                    break
            raise

    return run_backward


def error_line(error):
    first = str(error).partition("\n")[0]
    if first.startswith("tegula: "):
        return first.removeprefix("tegula: ")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


_torch.autograd._engine_run_backward = _torch.autograd.graph._engine_run_backward = _counting_failures(
    _torch.autograd.graph._engine_run_backward)


# Copies


def __copy__(self):
    if not _tegula.is_dtensor(self):
        return _copy._reconstruct(self, None, *self.__reduce_ex__(4))  # as without this method
    made = self.detach()
    if type(self) is not _torch.Tensor:
        made = made.as_subclass(type(self))
    made.requires_grad_(self.requires_grad)
    made.__dict__.update(self.__dict__)
    return made


_torch.Tensor.__copy__ = __copy__


@_for_dtensors
def __deepcopy__(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise _refused("a tensor with a history cannot be copied deeply", self, "detach() it first")
    made = self.detach().clone()
    if type(self) is not _torch.Tensor:
        made = made.as_subclass(type(self))
    made.requires_grad_(self.requires_grad)
    memo[id(self)] = made
    made.grad = _copy.deepcopy(self.grad, memo)
    made.__dict__.update(_copy.deepcopy(self.__dict__, memo))
    return made


_reduce_tile = None  # tegula.patch() lets each rank save its tile, as PyTorch's programs do


def save_tiles(reduce):
    """From here on pickling a distributed tensor is what reduce(tensor) says."""
    global _reduce_tile
    _reduce_tile = reduce


@_for_dtensors
def __reduce_ex__(self, protocol):
    if _reduce_tile is not None:
        return _reduce_tile(self)
    raise _refused("a distributed tensor cannot be pickled or saved: each rank holds a part of it", self,
                   "all ranks call tegula.full_tensor(x), one saves what that gives")


class _Nowhere:
    def write(self, data):
        pass


def _look_for_dtensors(value, pickle_module):
    """UsageError if pickling meets one; what else is wrong, torch.save says itself."""

    class Look(pickle_module.Pickler):
        def persistent_id(self, item):
            is_storage = _torch.is_storage(item) or isinstance(item, _torch.storage.TypedStorage)
            return "a storage" if is_storage else None

    try:
        Look(_Nowhere()).dump(value)
    except _tegula.UsageError:
        raise
    except Exception:
        pass


_plain_save = _torch.save


@_functools.wraps(_plain_save)
def _save(obj, f, pickle_module=_pickle, *args, **kwargs):
    if _reduce_tile is None:
        _look_for_dtensors(obj, pickle_module)
    return _plain_save(obj, f, pickle_module, *args, **kwargs)


_torch.save = _torch.serialization.save = _save
