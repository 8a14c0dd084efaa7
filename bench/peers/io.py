"""torch.distributed.checkpoint on two ranks over gloo, and the safetensors library in one process, doing the work of the
group "io" under the same case names."""
import os
import shutil
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import ranks as peers

RANKS, TENSORS, SIDE, ROUNDS = 2, 64, 2048, 3


def drop(folder):
    """What the files hold leaves the page cache."""
    for root, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(root, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def sync(folder):
    """What was written is on the disk, as after our save."""
    for root, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(root, name), os.O_RDONLY)
            os.fsync(file)
            os.close(file)


def median_time(before, body):
    """Milliseconds on the slowest rank; the first round warms up."""
    times = []
    for number in range(ROUNDS + 1):
        before()
        if dist.is_initialized():
            dist.barrier()
        begin = time.perf_counter()
        body()
        mine = torch.tensor([(time.perf_counter() - begin) * 1e3], dtype=torch.float64)
        if dist.is_initialized():
            dist.all_reduce(mine, dist.ReduceOp.MAX)
        if number > 0:
            times.append(mine.item())
    return statistics.median(times)


def measure_dcp(folder, rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    tensors = {}
    for k in range(TENSORS):
        shape = (SIDE // ranks, SIDE) if k % 2 == 0 else (SIDE, SIDE // ranks)
        tensors[f"x{k}"] = DTensor.from_local(torch.full(shape, float(k)), mesh, [Shard(k % 2)], run_check=False)

    def on_first(function):
        dist.barrier()
        if rank == 0:
            function()
        dist.barrier()

    save = median_time(lambda: on_first(lambda: shutil.rmtree(folder, ignore_errors=True)),
                       lambda: dcp.save(tensors, checkpoint_id=folder))
    load = median_time(lambda: on_first(lambda: drop(folder)), lambda: dcp.load(tensors, checkpoint_id=folder))
    peers.record("io", "save 1GiB 2 ranks", "torch-dcp", save, "ms")
    peers.record("io", "load 1GiB 2 ranks", "torch-dcp", load, "ms")


def measure_safetensors(folder):
    try:
        from safetensors.torch import load_file, save_file
    except ImportError:
        return
    tensors = {f"x{k}": torch.full((SIDE, SIDE), float(k)) for k in range(TENSORS)}
    path = f"{folder}/x.safetensors"

    def write():
        save_file(tensors, path)
        sync(folder)

    save = median_time(lambda: os.path.exists(path) and os.remove(path), write)

    def read():  # it maps the file: what is not touched is not read
        for tensor in load_file(path).values():
            tensor.view(torch.uint8).reshape(-1)[::4096].sum()

    load = median_time(lambda: drop(folder), read)
    peers.record("io", "save 1GiB 2 ranks", "safetensors", save, "ms")
    peers.record("io", "load 1GiB 2 ranks", "safetensors", load, "ms")


def main():
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            measure_safetensors(folder)
            os.environ["PEER_FOLDER"] = f"{folder}/dcp"
            peers.run(__file__, "all", RANKS)
        return
    with peers.joined() as (rank, ranks):
        measure_dcp(os.environ["PEER_FOLDER"], rank, ranks)


if __name__ == "__main__":
    main()
