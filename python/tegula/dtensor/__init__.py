"""The names of torch.distributed.tensor, over Tegula: a program written for PyTorch's DTensor with one changed import.

    import tegula.dtensor as dt                     # for torch.distributed.tensor
    from tegula.dtensor.parallel import ...         # for torch.distributed.tensor.parallel
    from tegula.dtensor.device_mesh import ...      # for torch.distributed.device_mesh

tegula.patch() or `python -m tegula program.py` does without the change. docs/from-pytorch.md says what differs.

Importing it gives torch.Tensor the attributes and methods of PyTorch's DTensor (placements, redistribute, ...);
tensors that are not distributed do not have them.
"""

import torch as _torch

from .. import _tegula, _tensors
from .._tegula import Partial, Replicate, Shard
from ._api import DTensor, Placement, distribute_module, distribute_tensor
from ._convert import from_torch, to_torch
from ._spec import DTensorSpec, TensorMeta
from ._values import our_mesh as _our_mesh, our_placements as _our_placements
from .device_mesh import DeviceMesh, init_device_mesh

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor",
    "empty", "full", "init_device_mesh", "ones", "rand", "randn", "zeros",
]


def _shape(size):
    return list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)


def _factory(name, doc):
    make = getattr(_tensors, name)

    def factory(*size, requires_grad=False, dtype=None, layout=_torch.strided, device_mesh=None, placements=None):
        _refuse_layout(layout)
        mesh = _our_mesh(device_mesh)
        return make(_shape(size), mesh, _our_placements(placements, mesh), dtype=dtype, requires_grad=requires_grad)

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = doc
    return factory


def _refuse_layout(layout):
    if layout is not _torch.strided:
        raise _tegula.UsageError(f"tegula: distributed tensors are strided\n  layout  {layout}\n  hint    leave it out")


empty = _factory("empty", "A distributed tensor whose values are not set.")
zeros = _factory("zeros", "A distributed tensor of zeros.")
ones = _factory("ones", "A distributed tensor of ones.")
rand = _factory("rand", "Uniform in [0, 1); the same numbers on any mesh.")
randn = _factory("randn", "Standard normal; the same numbers on any mesh.")


def full(size, fill_value, *, dtype=None, layout=_torch.strided, requires_grad=False, device_mesh=None, placements=None):
    """A distributed tensor of one value."""
    _refuse_layout(layout)
    mesh = _our_mesh(device_mesh)
    return _tensors.full(list(size), fill_value, mesh, _our_placements(placements, mesh), dtype=dtype, requires_grad=requires_grad)
