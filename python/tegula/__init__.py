"""Tegula: distributed tensors. Write the program for the whole tensor, run it on every rank.

    import torch, tegula as tg

    tg.init()                                    # tegula run -n 4 python program.py
    mesh = tg.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    w = tg.distribute_tensor(weight, mesh, [tg.Replicate(), tg.Shard(0)])
    y = torch.nn.functional.linear(x, w).relu()  # plain torch; w is a torch.Tensor
    tg.full_tensor(y)                            # the whole, on every rank

A distributed tensor is a torch.Tensor with the whole tensor's shape; this rank's tile and the spec
ride along. Functions that communicate are called by all ranks of the mesh, in the same order.
"""

import os as _os

import torch as _torch  # loads the libraries that _tegula stands on

from . import _built_for

if _torch.__version__.split("+")[0] != _built_for.TORCH:
    raise ImportError(f"tegula was built for torch {_built_for.TORCH}, and this is torch {_torch.__version__}: their "
                      "libraries do not fit\n  hint    install that torch, or build tegula anew: pip install "
                      "--no-build-isolation --force-reinstall --no-deps <its source>")

from . import _checkpointable, _compilers, _tegula, _tensor_methods
from ._tegula import (
    CommError, DeviceMesh, Error, GradientBucket, Group, InternalError, MaskPartial, Partial, Pending, Replicate, Shard, Style,
    StyledParameter, UsageError, World, build_distributed, gradient_policy, implicit_replication, is_dtensor, keep_gathered,
    lane, strict_mode,
)
from ._files import (
    AsyncSaver, LoadReport, PerRank, RandomState, export_hf, latest, load, load_hf, save,
)
from ._modules import (
    Colwise, PackedColwise, PackedRowwise, Refused, Replicated, Rowwise, Sequence, VocabularyCut, clip_grad_norm_,
    clip_grad_value_,
    distribute_module, distribute_optimizer_state, explain, fully_shard, grad_norm, no_sync, parallelize_module, placed,
    redistribute_module, reduce_gradients, replicate, set_gradient_policy, style_named,
)
from ._rules import (
    register_decomposition, register_sharding,
)
from ._tensors import (
    all_gather, all_reduce, all_to_all, arange, broadcast, distribute_tensor, empty, exchange, eye, from_local, full,
    full_tensor, halo, local_map, mesh, ones, permute, placements, rand, randint, randn, redistribute, reduce_scatter,
    shard_batch, spec, to_local, to_string, zeros,
)
from ._world import (
    CommLog, group, init, init_device_mesh, is_initialized, manual_seed, rank, recover, rng_state, run_ranks,
    set_rng_state, size,
)

__all__ = [
    "AsyncSaver", "LoadReport", "PerRank", "RandomState", "export_hf", "latest", "load", "load_hf", "save",
    "Colwise", "CommError", "CommLog", "DeviceMesh", "Error", "GradientBucket", "Group", "InternalError", "MaskPartial",
    "PackedColwise", "PackedRowwise", "Partial", "Pending", "Refused", "Replicate", "Replicated", "Rowwise", "Sequence", "Shard", "Style",
    "StyledParameter", "UsageError", "VocabularyCut", "World", "all_gather", "all_reduce", "all_to_all", "arange",
    "broadcast", "build_distributed", "clip_grad_norm_", "clip_grad_value_", "cmake_prefix_path", "distribute_module",
    "distribute_optimizer_state", "distribute_tensor", "empty", "exchange", "explain", "eye", "from_local", "full",
    "full_tensor", "fully_shard", "grad_norm", "gradient_policy", "group", "halo", "implicit_replication", "init",
    "init_device_mesh", "is_dtensor", "is_initialized", "keep_gathered", "lane", "local_map", "manual_seed", "mesh", "no_sync", "ones",
    "parallelize_module", "patch", "permute", "placed", "placements", "rand", "randint", "randn", "rank", "recover",
    "redistribute", "redistribute_module", "reduce_gradients", "reduce_scatter", "register_decomposition",
    "register_sharding", "replicate", "rng_state", "run_ranks", "set_gradient_policy", "set_rng_state", "shard_batch",
    "size", "spec", "strict_mode", "style_named", "to_local", "to_string", "zeros",
]

# For CMake's find_package(Tegula), where tegula was installed by pip; the C++ headers and libraries ride along.
cmake_prefix_path = _os.path.join(_os.path.dirname(__file__), "lib", "cmake")


def patch():
    """From here on torch.distributed.tensor and its like are Tegula's, for programs written for PyTorch's DTensor.

    Before the program imports names from them: `import tegula; tegula.patch()` in front, or the program as it
    is by `python -m tegula program.py`. docs/from-pytorch.md says what is the same and what is not.
    """
    from .dtensor import _patch

    _patch.patch()
