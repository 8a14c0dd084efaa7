"""Distributed tensors in torch.distributed.checkpoint: each rank writes and reads the boxes that it holds.

The three methods are what it asks objects for. A checkpoint can be read into other placements.
"""

import itertools

import torch

from . import _tegula
from ._tensor_methods import OfDTensors


def _boxes(tensor):
    """(offsets in the whole, sizes, slices of the tile) of each box that this rank holds; a tile of nothing has none."""
    if any(placement.is_partial() for placement in _tegula.placements(tensor)):
        raise _tegula.UsageError("tegula: a tensor that owes a reduction has no value that a checkpoint could hold\n"
                                 f"  tensor  {_tegula.spec(tensor)}\n  hint    redistribute it first")
    held = _tegula.slice(tensor)
    if held is None:
        return
    dims = []
    for intervals in held:
        places = itertools.accumulate((size for _, size in intervals), initial=0)
        dims.append([(begin, size, slice(at, at + size)) for (begin, size), at in zip(intervals, places)])
    for parts in itertools.product(*dims):
        offsets, sizes, places = ([part[k] for part in parts] for k in range(3))
        if all(sizes):
            yield torch.Size(offsets), torch.Size(sizes), tuple(places)


def _chunks(tensor):
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

    return [ChunkStorageMetadata(offsets=offsets, sizes=sizes) for offsets, sizes, _ in _boxes(tensor)]


def _write_items(tensor, name, _):
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    properties = TensorProperties.create_from_tensor(_tegula.to_local(tensor.detach(), None))
    return [WriteItem(index=MetadataIndex(name, chunk.offsets), type=WriteItemType.SHARD,
                      tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=tensor.size()))
            for chunk in _chunks(tensor)]


def _shard(tensor, index):
    for offsets, _, places in _boxes(tensor):
        if index.offset is None or torch.Size(index.offset) == offsets:
            return _tegula.to_local(tensor.detach(), None)[places]
    raise _tegula.UsageError("tegula: this rank does not hold the part of a tensor that a checkpoint asks for\n"
                             f"  tensor  {_tegula.spec(tensor)}\n  part    {index}\n  hint    please report it")


for _name, _function in (("__create_write_items__", _write_items), ("__create_chunk_list__", _chunks),
                         ("__get_tensor_shard__", _shard)):
    setattr(torch.Tensor, _name, OfDTensors(_name, _function.__get__))


def stage_copies():
    """torch.distributed.checkpoint.async_save copies what it saves, storage by storage; distributed tensors are cloned."""
    try:
        from torch.distributed.checkpoint._state_dict_stager import StateDictStager
    except ImportError:  # older ones copy tensors
        return
    stage = StateDictStager._offload_tensor

    def _offload_tensor(self, x, memo, non_blocking=False):
        if not _tegula.is_dtensor(x):
            return stage(self, x, memo, non_blocking)
        memo[id(x)] = x.detach().clone()
        return memo[id(x)]

    StateDictStager._offload_tensor = _offload_tensor
