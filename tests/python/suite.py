"""Runs samples of torch's own tests on distributed tensors: what op_db.py, module_db.py and optim_db.py share.

What comes of a sample:

    right        the same values; or plain torch throws, and so does ours
    refused      a tegula.UsageError
    wrong        other values, shapes or element types
    error        another exception
    out of step  ranks that end differently
    hang         no end within --timeout seconds
    crash        a rank's process ended (its own trace says why; --json FILE --resume goes on behind it)

Samples that draw random numbers are compared by shape and element type, and all ranks must see the same numbers.
The exit code is 1 unless all samples are right, but for those whose names a file lists as refused.
"""
import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import warnings
import zlib

if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"  # torch's samples walk through sets: all ranks in the same order
    os.execv(sys.executable, [sys.executable, *sys.argv])
os.environ.setdefault("TEGULA_LOG", "error")  # which operators gather is no news here

import torch

from peer import PyTorch
from placing import Chooser, Distributed, Plain
from ranks import Lost, Ranks
from report import Report, names_in
from trial import Outcome, agree


class Watchdog:
    """Ends the process, with a report, when a sample takes too long."""

    def __init__(self, seconds, give_up):
        self.seconds, self.give_up = seconds, give_up
        self.deadline = None
        threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self):
        self.deadline = time.monotonic() + self.seconds
        faulthandler.dump_traceback_later(2 * self.seconds, exit=True)  # if the lock is held

    def __exit__(self, *_):
        self.deadline = None
        faulthandler.cancel_dump_traceback_later()

    def _watch(self):
        while True:
            time.sleep(0.5)
            deadline = self.deadline
            if deadline is not None and time.monotonic() > deadline:
                faulthandler.dump_traceback()
                self.give_up(f"no end within {self.seconds} s")


class Suite:
    """Samples of one kind. A kind says its `noun`, the file of names that are `refused`, and its `cases`."""

    def __init__(self, options):
        self.options = options
        self.ranks = Ranks()
        shape = tuple(int(n) for n in options.mesh.split("x")) if options.mesh else (self.ranks.size,)
        kinds = {"tegula": lambda: Distributed(shape, options.timeout / 2), "plain": Plain,
                 "torch": lambda: PyTorch(shape, options.timeout / 2)}
        self.tensors = kinds[options.who]()
        self.axes = len(shape)
        # Ranks draw different plain numbers, so that none agree by luck; PyTorch asks for the same.
        self.own_draws = 1 + self.ranks.rank if options.who == "tegula" else 0
        is_first = self.ranks.rank == 0
        # All ranks read what an earlier run left before rank 0 goes on writing it.
        self.report = Report(self.noun, options.json if is_first or options.resume else None, options.resume)
        if not is_first:
            self.report.file = None
        self.ranks.exchange(None, seconds=60)
        self.watchdog = Watchdog(options.timeout, self.give_up)
        signal.signal(signal.SIGTERM, lambda *_: self.give_up("another rank ended"))

    def cases(self):
        """(name, number, a function that makes the trial), in the same order on all ranks."""
        raise NotImplementedError

    def is_wanted(self, *names):
        wanted, left_out = (set(text.split(",")) if text else set() for text in (self.options.only, self.options.skip))
        return not left_out & set(names) and (not wanted or bool(wanted & set(names)))

    def seed(self, name):
        """Seeds plain torch and Python for the samples of this name, and says how."""
        seed = zlib.crc32(name.encode()) + self.options.seed
        torch.manual_seed(seed)
        random.seed(seed)
        return seed

    def spread(self, found):
        """(number, sample) of as many samples as were asked for: spread over all, the very first among them."""
        count = min(len(found), self.options.samples or len(found))
        return [(i, found[i]) for i in (len(found) * k // count for k in range(count))]

    def chooser(self, seed):
        return Chooser(self.axes, seed)

    def give_up(self, reason):
        if self.report.begun:
            self.report.end("crash" if "ended" in reason else "hang", reason, 0)
        if self.ranks.rank == 0:
            self.print()
        os._exit(1)

    def print(self):
        self.report.print(self.options.list_refused, self.options.slow)

    def run(self):
        for name, number, make_trial in self.cases():
            if not self.report.has(name, number):
                self.try_sample(name, number, make_trial())
        more_refused = self.report.refused_beyond(names_in(self.refused)) if self.options.who == "tegula" else []
        if self.ranks.rank == 0:
            self.print()
            for name in more_refused:
                print(f"refused, but {os.path.basename(self.refused)} does not name it: {name}", flush=True)
        return 0 if self.report.is_good() and not more_refused else 1

    def try_sample(self, name, number, trial):
        if not trial.inputs:
            return  # nothing to distribute
        self.report.begin(name, number, str(trial), trial.cut())
        start = time.monotonic()
        with self.watchdog:
            mine = trial.run()
        outcome = agree(self.exchange(mine))
        is_drawn = outcome == Outcome("right", "drawn", outcome.fingerprint)
        if (is_drawn or outcome.kind != "right") and not self.mend(outcome) and is_drawn:
            outcome = Outcome("refused", "ranks drew different plain operands")
        self.report.begun["cut"] = trial.cut()
        self.report.end(outcome.kind, outcome.message, 1000 * (time.monotonic() - start))
        if self.options.verbose and self.ranks.rank == 0:
            print(f"{outcome.kind:11} {name} {number}: {trial} {outcome.message}", flush=True)

    def exchange(self, mine):
        try:
            message = [mine.kind, mine.message[:1000], mine.fingerprint]
            return [Outcome(*theirs) for theirs in self.ranks.exchange(message, 2 * self.options.timeout)]
        except Lost as lost:
            self.give_up(str(lost))

    def mend(self, outcome):
        """Makes a new world if this one broke. Says whether it works as it is."""
        with self.watchdog:
            works = outcome.kind != "out of step" and self.tensors.works()
            if all(self.ranks.exchange(works, 2 * self.options.timeout)):
                return True
            try:
                self.tensors.renew()
            except RuntimeError as error:
                if outcome.kind != "right":
                    self.report.end(outcome.kind, outcome.message, 0)
                self.give_up(f"no new world: {error}")
            return False


def parser_of(suite):
    """The options that all kinds of samples have."""
    parser = argparse.ArgumentParser(description=suite.__doc__.splitlines()[0])
    parser.add_argument("--only", help="these names")
    parser.add_argument("--skip", help="not these")
    parser.add_argument("--samples", type=int, default=3, help="per name; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mesh", help="for example 2x2; else one axis of all ranks")
    parser.add_argument("--timeout", type=float, default=60, help="seconds per sample")
    parser.add_argument("--json", help="one line per sample, written as it ends")
    parser.add_argument("--resume", action="store_true",
                        help="go on where --json ends; what was begun there is a crash")
    parser.add_argument("--list-refused", action="store_true")
    parser.add_argument("--slow", type=int, default=0, help="name so many slowest ones")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--who", choices=("tegula", "torch", "plain"), default="tegula",
                        help="whose tensors: Tegula's, PyTorch's DTensors, or plain ones, which tests this program")
    return parser


def run(suite, options):
    """Runs it and ends the process, without a wait for peers that may be stuck."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    torch.set_num_threads(1)
    code = suite(options).run()
    sys.stdout.flush()
    os._exit(code)
