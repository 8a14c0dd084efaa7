"""PyTorch's DTensor doing the work of the group "core", under the same case names.

Prints one JSON line per measurement. Values are medians of several runs, in microseconds. Meshes are
made without process groups, which is the fastest that PyTorch offers.
"""
import json
import statistics
import time

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

REPETITIONS = 5
SECONDS_PER_REPETITION = 0.05


def measure(case, body):
    def time_of(count):
        begin = time.perf_counter()
        for _ in range(count):
            body()
        return time.perf_counter() - begin

    count = 1
    while time_of(count) < SECONDS_PER_REPETITION / 4:
        count *= 2
    value = statistics.median(time_of(count) / count for _ in range(REPETITIONS)) * 1e6
    print(json.dumps({"group": "core", "case": case, "who": "torch-dtensor", "value": value, "unit": "us"}))


def make_mesh(ranks):
    return DeviceMesh("cpu", torch.arange(ranks).view(ranks // 8, 8), mesh_dim_names=("dp", "tp"),
                      _init_backend=False, _rank=ranks - 3)


def main():
    mesh = make_mesh(64)
    meta = TensorMeta(torch.Size([1024, 4096]), (4096, 1), torch.float32)
    spec = DTensorSpec(mesh, (Replicate(), Shard(0)), meta)

    # The nearest there is to interning: make a spec, hash it, and compare it with the one kept.
    def make_and_find():
        fresh = DTensorSpec(mesh, (Replicate(), Shard(0)), meta)
        assert hash(fresh) == hash(spec) and fresh == spec

    measure("intern a known spec", make_and_find)
    uneven = torch.Size([1000, 4097])
    measure("local slice", lambda: compute_local_shape_and_global_offset(uneven, mesh, (Shard(0), Shard(1))))
    for ranks in (8, 64, 512, 4096, 65536):
        measure(f"mesh create from a list {ranks} ranks", lambda ranks=ranks: make_mesh(ranks))


if __name__ == "__main__":
    main()
