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


def run(script, part, ranks, stdout=None):
    """Runs `script part` as that many ranks, which use joined(). They write where `stdout` says."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            place = {"PEER_RANK": str(rank), "PEER_RANKS": str(ranks), "PEER_STORE": folder + "/store",
                     "OMP_NUM_THREADS": "1"}
            children.append(subprocess.Popen([sys.executable, script, part], env={**os.environ, **place}, stdout=stdout))
        if any([child.wait() for child in children]):
            sys.exit(f"a rank of {part} failed")


def measured(script, part, ranks):
    """The measurements that such ranks record."""
    with tempfile.TemporaryFile("w+") as lines:
        run(script, part, ranks, lines)
        lines.seek(0)
        return [json.loads(line) for line in lines if line.startswith("{")]


def record_medians(runs):
    """Of measurements that stand in several lists, the medians, in the order of the first list."""
    for one in runs[0]:
        alike = [other["value"] for measurements in runs for other in measurements
                 if (other["case"], other["who"]) == (one["case"], one["who"])]
        record(one["group"], one["case"], one["who"], statistics.median(alike), one["unit"])


class PeakMemory:
    """Resident memory that this process has come to need, at its peak, since this was made."""

    def __init__(self):
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak so far is forgotten
        self.before = self.status("VmRSS:")

    @staticmethod
    def status(name):
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name))

    def megabytes(self):
        """Of the rank that needs most."""
        mine = torch.tensor([(self.status("VmHWM:") - self.before) / 1024], dtype=torch.float64)
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        return mine.item()


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
