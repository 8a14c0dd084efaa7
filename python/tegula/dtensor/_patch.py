"""Ours in place of PyTorch's, under PyTorch's names; names that we lack refuse, so that nothing is mixed unnoticed."""

import importlib

import torch

from . import debug, device_mesh, experimental, fsdp as our_fsdp, parallel
from .. import _tegula, dtensor

# PyTorch's modules, and where our names for theirs are.
_MODULES = {
    "torch.distributed.device_mesh": device_mesh,
    "torch.distributed.tensor": dtensor,
    "torch.distributed.tensor.placement_types": dtensor,
    "torch.distributed.tensor.parallel": parallel,
    "torch.distributed.tensor.parallel.style": parallel,
    "torch.distributed.tensor.debug": debug,
    "torch.distributed.tensor.experimental": experimental,
    "torch.distributed._tensor": dtensor,
}
_HINTS = {
    "context_parallel": "tensors cut along the sequence go through attention as they are",
    "register_sharding": "tegula.register_sharding takes a rule as text: docs/rules.md",
    "visualize_sharding": "print(x) says the spec; tegula.to_string(x) the values, too",
}
_patched = False


def _refusal(module, name):
    def refused(*args, **kwargs):
        hint = _HINTS.get(name, "docs/from-pytorch.md lists what there is")
        raise _tegula.UsageError(f"tegula: {module}.{name} is not there under tegula.patch()\n  hint    {hint}")

    refused.__name__ = refused.__qualname__ = name
    return refused


def patch():
    """Puts our names into PyTorch's modules, once."""
    global _patched
    if _patched:
        return
    modules = {path: importlib.import_module(path) for path in _MODULES}  # all of them, while they are what they were
    fsdp = importlib.import_module("torch.distributed.fsdp")
    for path, ours in _MODULES.items():
        theirs = modules[path]
        for name in getattr(theirs, "__all__", ours.__all__):
            setattr(theirs, name, getattr(ours, name, None) or _refusal(path, name))
        for name in ours.__all__:
            setattr(theirs, name, getattr(ours, name))
    for name in our_fsdp.__all__:
        setattr(fsdp, name, getattr(our_fsdp, name))
    for name in device_mesh.__all__:
        setattr(torch.distributed, name, getattr(device_mesh, name))
    _patched = True
