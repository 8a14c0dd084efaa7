"""The names of torch.distributed.tensor._random that programs use."""

import torch

from .._tegula import UsageError

__all__ = ["manual_seed"]


def manual_seed(seed, device_mesh):
    """As torch.manual_seed, which the ranks of a mesh call alike."""
    if device_mesh.get_coordinate() is None:
        raise UsageError(f"tegula: this rank is not in the mesh that is seeded\n  mesh    {device_mesh}\n"
                         "  hint    torch.manual_seed sets the seed of any rank")
    torch.manual_seed(seed)
