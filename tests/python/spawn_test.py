"""Ranks that no launcher started: torch.multiprocessing, and torch.distributed's own rendezvous. Tegula takes their places."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def rank_of_two(rank, path):
    import tegula as tg

    tg.patch()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    assert (tg.rank(), tg.size(), mesh.get_rank()) == (rank, RANKS, rank)
    assert not any(name.startswith("TEGULA_") for name in os.environ)
    x = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    assert x.to_local().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]][rank]
    assert x.redistribute(placements=[Replicate()]).to_local().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total, group=mesh.get_group())
    assert total.item() == 3.0
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_of_two, args=(os.path.join(folder, "meeting"),), nprocs=RANKS)  # throws what a rank throws
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
