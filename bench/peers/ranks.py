"""Starts the peers' ranks, times them, and prints measurements as JSON lines.

Each rank has one thread and, while there are enough, a processor of its own, as ours have. A script
that uses this calls itself once per rank.
"""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist


def record(group, case, who, value, unit="us", failure=None):
    """A failure, "refused" or "wrong", stands for a value that is None."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        line = {"group": group, "case": case, "who": who, "value": value, "unit": unit}
        print(json.dumps({**line, "failure": failure} if failure else line), flush=True)


def run(script, part, ranks):
    """Runs `script part` as that many ranks, which use joined()."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            place = {"PEER_RANK": str(rank), "PEER_RANKS": str(ranks), "PEER_STORE": folder + "/store",
                     "OMP_NUM_THREADS": "1"}
            children.append(subprocess.Popen([sys.executable, script, part], env={**os.environ, **place}))
        if any([child.wait() for child in children]):
            sys.exit(f"a rank of {part} failed")


@contextlib.contextmanager
def joined():
    """Gives rank and number of ranks. All leave together and in order: gloo can crash a process that just ends."""
    rank, ranks = int(os.environ["PEER_RANK"]), int(os.environ["PEER_RANKS"])
    torch.set_num_threads(1)
    processors = sorted(os.sched_getaffinity(0))
    if ranks <= len(processors):
        os.sched_setaffinity(0, {processors[rank]})
    dist.init_process_group("gloo", init_method="file://" + os.environ["PEER_STORE"], rank=rank, world_size=ranks)
    yield rank, ranks
    store = dist.FileStore(os.environ["PEER_STORE"] + ".done", ranks)
    store.set(str(rank), "")
    store.wait([str(other) for other in range(ranks)])
    dist.destroy_process_group()


def time_of(body, calls, rounds):
    """Microseconds per call: the median round of the slowest rank."""
    times = []
    for number in range(rounds + 1):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        mine = torch.tensor([(time.perf_counter() - begin) / calls * 1e6], dtype=torch.float64)
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        if number > 0:  # the first one warms up
            times.append(mine.item())
    return statistics.median(times)


def calls_within(body, seconds):
    """How many calls take about that long here."""
    count = 1
    while True:
        begin = time.perf_counter()
        for _ in range(count):
            body()
        if time.perf_counter() - begin > seconds / 4:
            return max(1, int(count * seconds / (time.perf_counter() - begin)))
        count *= 2
