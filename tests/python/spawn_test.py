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


def beside_pytorchs_own(rank, path):
    """DTensors of both kinds in one program, one made of the other without a copy."""
    import tegula as tg
    from tegula.dtensor import from_torch, to_torch
    import torch.distributed.tensor as theirs

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=RANKS)
    grid = theirs.DeviceMesh("cpu", list(range(RANKS)), mesh_dim_names=("tp",))
    x = theirs.distribute_tensor(torch.arange(5.0).reshape(5, 1), grid, [theirs.Shard(0)]).requires_grad_()
    y = from_torch(x)
    assert tg.placements(y) == (tg.Shard(0),) and tg.mesh(y).names == ("tp",)
    assert tg.to_local(y).data_ptr() == x.to_local().data_ptr()
    assert tg.full_tensor(y).flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    back = to_torch(y * 2, grid)
    assert type(back) is theirs.DTensor and back.shape == (5, 1)
    back.redistribute(placements=[theirs.Replicate()]).to_local().sum().backward()
    assert x.grad.full_tensor().flatten().tolist() == [2.0] * 5
    owned = tg.from_local(torch.ones(rank + 1), tg.mesh(y), [tg.Shard(0)])
    for call, sentence in ((lambda: to_torch(owned, grid), "no such placement"), (lambda: from_torch(owned), "of PyTorch's")):
        try:
            call()
        except tg.UsageError as error:
            assert sentence in str(error)
        else:
            raise AssertionError(sentence)
    dist.destroy_process_group()


def patched_by_its_parent(rank, path):
    """A process that a patched one has started is patched; process groups made anew make the world anew."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    assert DTensor.__module__.startswith("tegula")
    for turn, ranks in enumerate((RANKS, 1, RANKS)):
        if rank < ranks:
            dist.init_process_group("gloo", init_method=f"file://{path}-{turn}", rank=rank, world_size=ranks)
            x = distribute_tensor(torch.arange(6.0), init_device_mesh("cpu", (ranks,)), [Shard(0)])
            assert x.to_local().shape == (6 // ranks,) and x.full_tensor().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
            dist.destroy_process_group()


def imagined(rank, path):
    """PyTorch's fake process group: an imagined world, of shapes only."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    x = distribute_tensor(torch.arange(16.0), init_device_mesh("cpu", (8,)), [Shard(0)], src_data_rank=None)
    assert x.to_local().tolist() == [6.0, 7.0] and x.redistribute(placements=[Replicate()]).to_local().shape == (16,)


def ranks_as_threads():
    """PyTorch's threaded process groups: worlds of threads, several of them one after the other."""
    import unittest

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.common_distributed import MultiThreadedTestCase

    class Threads(MultiThreadedTestCase):
        world_size = 3

        def setUp(self):
            super().setUp()
            self._spawn_threads()

        def test_first(self):
            mesh = init_device_mesh("cpu", (3,))
            x = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)]).requires_grad_()
            assert x.to_local().tolist() == [2.0 * self.rank, 2.0 * self.rank + 1]
            assert x.device_mesh.get_local_rank() == self.rank
            (x * x).sum().backward()
            assert x.grad.full_tensor().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]

        test_second = test_first

    result = unittest.defaultTestLoader.loadTestsFromTestCase(Threads).run(unittest.TestResult())
    assert result.testsRun == 2 and result.wasSuccessful(), result


def main():
    import tegula as tg

    with tempfile.TemporaryDirectory() as folder:
        def spawn(function, ranks):  # throws what a rank throws
            mp.spawn(function, args=(os.path.join(folder, function.__name__),), nprocs=ranks)

        spawn(rank_of_two, RANKS)
        spawn(beside_pytorchs_own, RANKS)
        tg.patch()
        spawn(patched_by_its_parent, RANKS)
        spawn(imagined, 1)
        ranks_as_threads()
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
