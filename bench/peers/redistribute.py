"""PyTorch's DTensor doing the work of the group "redistribute", under the same case names, over gloo."""
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import ranks as peers

RANKS = 2
CASES = [
    ("S(0)->R 64MiB", 4096, Shard(0), Replicate(), 1, 7),
    ("P(sum)->R 64MiB", 4096, Partial(), Replicate(), 1, 7),
    ("P(sum)->S(0) 64MiB", 4096, Partial(), Shard(0), 1, 7),
    ("S(1)->S(0) 64MiB", 4096, Shard(1), Shard(0), 1, 7),
    ("R->S(0) 4KiB", 32, Replicate(), Shard(0), 1000, 9),
]


def measure_all(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    for name, size, before, after, calls, rounds in CASES:
        tile = torch.rand(size // ranks if before == Shard(0) else size, size // ranks if before == Shard(1) else size)
        tensor = DTensor.from_local(tile, mesh, [before], run_check=False)

        def body():  # waits for the result
            tensor.redistribute(placements=[after])

        peers.record("redistribute", f"{name} {ranks} ranks", "torch-dtensor", peers.time_of(body, calls, rounds))


def main():
    if len(sys.argv) == 1:
        peers.run(__file__, "all", RANKS)
        return
    with peers.joined() as (_, ranks):
        measure_all(ranks)


if __name__ == "__main__":
    main()
