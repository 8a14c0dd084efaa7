"""What happens on the other ranks when one of three does what it should not, and after how long.

Prints a table: Tegula over its engines, PyTorch's c10d over gloo, and MPI. Every job is a program that prints
the lines of bench/faults.cpp; c10d's is this script itself. Where there is a timeout it is TIMEOUT seconds; a
job that takes longer than LIMIT is ended.

Usage: faults.py <folder of the programs> [--who tegula-shm,c10d-gloo] [--fault kill,stop]
"""
import argparse
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 3
FAULTY = 1
COUNT = 1024
TIMEOUT = 10
LIMIT = 20
FAULTS = {
    "kill": "rank 1 is killed (`kill -9`)",
    "stop": "rank 1 is stopped (`SIGSTOP`)",
    "call": "rank 1 makes another call",
    "shape": "rank 1 gives another shape",
    "exception": "an exception ends rank 1",
    "caught": "rank 1 catches an op's error and does not go on",
}


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


# c10d
# ----------------------------------------------------------------------------------------------------------

def be_rank(fault, rank, store):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=TIMEOUT))
    for _ in range(3):
        dist.all_reduce(torch.ones(COUNT))
    if rank == FAULTY:
        say("fault", time.monotonic())
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "call":
            dist.broadcast(torch.ones(COUNT), FAULTY)
        if fault == "shape":
            dist.all_reduce(torch.ones(COUNT + 512))
        if fault == "exception":
            raise RuntimeError("a mistake of the program")
        signal.pause()
    try:
        dist.all_reduce(torch.ones(COUNT))
        say("returned", rank, time.monotonic())
    except Exception as error:
        say("threw", rank, time.monotonic(), str(error).splitlines()[0])
    os._exit(0)


def run_c10d(fault):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", fault, str(rank), folder + "/store"])
                 for rank in range(RANKS)]
        observers = {rank for rank in range(RANKS) if rank != FAULTY}
        while observers:
            for rank in sorted(observers):
                if ranks[rank].poll() is not None:
                    say("ended", rank, time.monotonic())
                    observers.discard(rank)
            time.sleep(0.01)
        ranks[FAULTY].kill()


# The table
# ----------------------------------------------------------------------------------------------------------

def commands(programs):
    """who -> the command of a job, without the fault"""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS)]
    tegula = str(programs / "tegula-bench-faults")
    known = {
        "tegula-shm": lambda fault: [tegula, fault, "shm", str(TIMEOUT)],
        "tegula-gloo": lambda fault: [tegula, fault, "gloo", str(TIMEOUT)],
        "c10d-gloo": lambda fault: [sys.executable, __file__, "--job", fault],
    }
    if (programs / "tegula-bench-faults-mpi").exists():
        known["tegula-mpi"] = lambda fault: [*mpirun, tegula, fault, "mpi", str(TIMEOUT)]
        known["mpi"] = lambda fault: [*mpirun, str(programs / "tegula-bench-faults-mpi"), fault]
    return known


def run_job(command):
    """Its lines, split, and when it ended; None if it had to be ended."""
    lines = []
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def read():
        for line in job.stdout:
            lines.append(line.split(maxsplit=3))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        job.wait(LIMIT + 10)  # it has to start, too
        end = time.monotonic()
    except subprocess.TimeoutExpired:
        end = None
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.wait()
    reader.join()
    return lines, end


def shortened(text):
    """Without where in gloo's source, without addresses, and the first sentence only."""
    return re.sub(r"\[/[^]]*\] | \[[\d.]+\]:\d+|^tegula: |\. .*", "", text)


def outcome(lines, end):
    """What the slowest of the other ranks met, in words."""
    begin = next((float(line[1]) for line in lines if line[0] == "fault"), None)
    if begin is None:
        return "the job did not start"
    met = {int(line[1]): (line[0], float(line[2]), line[3].strip() if len(line) > 3 else "")
           for line in lines if line[0] in ("threw", "returned")}
    gone = {int(line[1]): float(line[2]) for line in lines if line[0] == "ended"}
    slowest = ("", 0.0, "")
    for rank in range(RANKS):
        if rank == FAULTY:
            continue
        if rank in met:
            mine = met[rank]
        elif rank in gone or end is not None:
            mine = ("crashed" if rank in gone else "was ended with its job", gone.get(rank, end), "")
        else:
            return f"still waiting after {LIMIT} s"
        if mine[1] > slowest[1]:
            slowest = mine
    what, when, text = slowest
    text = shortened(text)
    after = when - begin
    if what == "threw":
        return f"{after:.2f} s: error \"{text}\""
    if what == "returned":
        return f"{after:.2f} s: returns as if nothing had happened"
    return f"{after:.2f} s: {what}"


def print_table(programs, chosen, faults):
    known = commands(programs)
    whos = chosen or list(known)
    print("| fault | " + " | ".join(whos) + " |\n| --- |" + " --- |" * len(whos), flush=True)
    for fault in faults or FAULTS:
        cells = [outcome(*run_job(known[who](fault))) for who in whos]
        print(f"| {FAULTS[fault]} | " + " | ".join(cells) + " |", flush=True)


def main():
    if sys.argv[1:2] == ["--rank"]:
        return be_rank(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    if sys.argv[1:2] == ["--job"]:
        return run_c10d(sys.argv[2])
    names = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--who", type=names)
    parser.add_argument("--fault", type=names)
    arguments = parser.parse_args()
    print_table(arguments.programs.resolve(), arguments.who, arguments.fault)


if __name__ == "__main__":
    main()
