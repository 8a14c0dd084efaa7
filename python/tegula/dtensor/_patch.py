"""Ours in place of PyTorch's, under PyTorch's names.

PyTorch's values stay: meshes, placements, specs. So do its functions that only call what tensors offer: modules and
their styles, local_map. What makes tensors or works on them is ours, wherever PyTorch's own modules hold it: the DTensor
that torch.distributed.checkpoint asks isinstance for is ours, too. What we lack refuses, so that nothing is mixed
unnoticed. Processes that the program starts by multiprocessing are patched before they import anything of it.
"""

import functools
import importlib
import multiprocessing.spawn
import sys

from torch.optim.optimizer import _foreach_supported_types

from . import _api, _random, _ranks, _saved, _values, debug, experimental, fsdp, parallel
from .. import _checkpointable, _tegula, _tensor_methods, dtensor

# Of PyTorch's modules, the names that are ours; and where ours are.
_OURS = {
    "torch.distributed.tensor": (dtensor, ["DTensor", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]),
    "torch.distributed.tensor._api": (_api, ["_shard_tensor"]),
    "torch.distributed.tensor._random": (_random, ["manual_seed"]),
    "torch.distributed.tensor._utils": (experimental, ["ExplicitRedistributionContext"]),
    "torch.distributed.tensor.parallel": (parallel, ["loss_parallel"]),
    "torch.distributed.tensor.debug": (debug, ["CommDebugMode"]),
    "torch.distributed.tensor.experimental": (experimental, ["implicit_replication", "register_sharding"]),
    "torch.distributed.fsdp": (fsdp, fsdp.__all__),
}
# Those that are refused, with a hint.
_REFUSED = {
    "torch.distributed.tensor.experimental": {
        "context_parallel": "tensors cut along the sequence go through attention as they are",
    },
}
_patched = False


def _refusal(module, name, hint):
    def refused(*args, **kwargs):
        raise _tegula.UsageError(f"tegula: {module}.{name} is not there under tegula.patch()\n  hint    {hint}")

    refused.__name__ = refused.__qualname__ = name
    return refused


def _replacements():
    """[(PyTorch's, ours)]"""
    found = []
    for path, (ours, names) in _OURS.items():
        theirs = importlib.import_module(path)
        found += [(getattr(theirs, name), getattr(ours, name)) for name in names if hasattr(theirs, name)]
    for path, hints in _REFUSED.items():
        theirs = importlib.import_module(path)
        found += [(getattr(theirs, name), _refusal(path, name, hint)) for name, hint in hints.items() if hasattr(theirs, name)]
    return found


def _replace(replacements):
    ours_for = {id(theirs): ours for theirs, ours in replacements}
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.distributed") and module is not None:
            for name, value in list(vars(module).items()):
                if id(value) in ours_for:
                    setattr(module, name, ours_for[id(value)])


def _make_worlds_with_meshes():
    """All ranks make a mesh of PyTorch's together; so that is when the world can be made."""
    from torch.distributed.device_mesh import DeviceMesh

    make = DeviceMesh.__init__

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        _ranks.ensure_process_group()
        make(self, *args, **kwargs)
        _ranks.ensure_world()

    DeviceMesh.__init__ = __init__


class _PatchOnArrival:
    """Unpickled, it calls tegula.patch(): in a process that is being started, before it imports the program."""

    def __reduce__(self):
        return exec, (f"import sys; sys.path = {sys.path!r}; import tegula; tegula.patch()",)


def _patch_started_processes():
    prepare = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name):
        return {"tegula": _PatchOnArrival(), **prepare(name)}

    multiprocessing.spawn.get_preparation_data = get_preparation_data


def patch():
    """Puts our names into PyTorch's modules, once."""
    global _patched
    if _patched:
        return
    replacements = _replacements()
    # PyTorch's compiler registers operators with it; our tensors do not ask it.
    _api.DTensor._op_dispatcher = next(theirs for theirs, ours in replacements if ours is _api.DTensor)._op_dispatcher
    _replace(replacements)
    _foreach_supported_types.append(_api.DTensor)
    _values.speak_pytorch()
    _tensor_methods.save_tiles(_saved.reduced)
    _checkpointable.stage_copies()
    _make_worlds_with_meshes()
    _patch_started_processes()
    _patched = True
