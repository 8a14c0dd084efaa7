"""The names of torch.distributed.tensor.debug."""

import collections

import torch

from .._world import CommLog

__all__ = ["CommDebugMode"]

_NAMES = {"all_reduce": "all_reduce", "all_gather": "all_gather_into_tensor",
          "reduce_scatter": "reduce_scatter_tensor", "all_to_all": "all_to_all_single", "broadcast": "broadcast"}


class CommDebugMode:
    """Counts the collectives of this rank while it is entered, under the names that PyTorch gives them.

    What Tegula sends may be less than what PyTorch sends. tegula.CommLog lists bytes, axes and reasons, too.
    """

    def __init__(self):
        self._log = None

    def __enter__(self):
        self._log = CommLog()
        self._log.__enter__()
        return self

    def __exit__(self, *error):
        self._log.__exit__(*error)

    def get_comm_counts(self):
        """How many, by operator of torch.ops.c10d_functional; those of other kinds by their own name."""
        counts = collections.defaultdict(int)
        for entry in self._log.entries() if self._log else ():
            name = _NAMES.get(entry.kind)
            counts[getattr(torch.ops.c10d_functional, name) if name else entry.kind] += 1
        return counts

    def get_total_counts(self):
        return sum(self.get_comm_counts().values())

    def __str__(self):
        return str(self._log)
