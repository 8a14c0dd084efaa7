"""Distributed tensors in pickles and files of torch.save: each rank saves its own tile, as PyTorch's programs do.

A tile says whose it is: another rank that loads it is refused.
"""

import torch

from .. import _tegula, _tensors, _world
from .._tegula import UsageError
from ._values import our_mesh, placements_of_spec, shown_spec


def reduced(tensor):
    """What pickle keeps of a distributed tensor."""
    tile = _tensors.to_local(tensor.detach())
    # A view would bring all of its storage along.
    tile = tile if tile.numel() * tile.element_size() == tile.untyped_storage().nbytes() else tile.clone()
    return rebuilt, (tile, shown_spec(tensor), _tegula.world_of_mesh(_tegula.mesh(tensor)).rank, tensor.requires_grad)


def rebuilt(tile, spec, rank, requires_grad):
    """The tensor again, on the rank that saved it."""
    mesh = our_mesh(spec.mesh)
    placements = placements_of_spec(spec)
    if _world.rank() != rank and not all(placement.is_replicate() for placement in placements):
        raise UsageError("tegula: a tile was saved by another rank, and each rank's is different\n"
                         f"  saved   by rank {rank}, placed as {placements}\n  loaded  by rank {_world.rank()}\n"
                         "  hint    torch.distributed.checkpoint and tegula.save keep whole tensors")
    made = _tensors.from_local(tile, mesh, placements, list(spec.tensor_meta.shape), list(spec.tensor_meta.stride),
                               run_check=False)
    return made.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([rebuilt])
