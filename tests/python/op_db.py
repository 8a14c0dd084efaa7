"""Runs torch's own operator samples on distributed tensors and compares with the plain operator.

    tegula run -n 2 python op_db.py [--ops add,nn.functional.conv2d] [--samples 4] [--json FILE]

Every operator that takes float32 on the CPU is called with samples that torch's tests use. Each
tensor argument gets a random placement (cut, replicated, or owing a sum), the same on all ranks.
The whole of every output, and the gradients of all floating inputs under random cotangents, must be
those of the plain operator. What comes of a sample:

    right        the same values; or the plain operator throws, and so does ours
    refused      a tegula.UsageError
    wrong        other values, shapes or element types
    error        another exception
    out of step  ranks that end differently
    hang         no end within --timeout seconds
    crash        a rank's process ended (its own trace says why; --json FILE --resume goes on behind it)

Random operators are compared by shape and element type, and all ranks must see the same numbers.
Exit code 1 if anything is wrong, out of step, hanging or crashing, if less than 97% are right, or if an operator
is refused that refused_ops.txt does not name.
"""
import argparse
import faulthandler
import itertools
import os
import random
import signal
import sys
import threading
import time
import warnings
import zlib

if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"  # torch's samples walk through sets: all ranks in the same order
    os.execv(sys.executable, [sys.executable, *sys.argv])
os.environ.setdefault("TEGULA_LOG", "error")  # which operators gather is no news here

import torch

from placing import Chooser, Distributed, Plain
from ranks import Lost, Ranks
from report import Report, names_in
from trial import Outcome, Trial, agree, has_form

REFUSED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refused_ops.txt")
# The first so many samples of an operator are the ones to choose from.
SAMPLES_SEEN = 60


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


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
    def __init__(self, options):
        self.options = options
        self.ranks = Ranks()
        shape = tuple(int(n) for n in options.mesh.split("x")) if options.mesh else (self.ranks.size,)
        self.tensors = Plain() if options.plain else Distributed(shape, options.timeout / 2)
        self.axes = len(shape)
        # Ranks draw different plain numbers, so that none agree by luck.
        self.own_draws = 0 if options.plain else 1 + self.ranks.rank
        is_first = self.ranks.rank == 0
        # All ranks read what an earlier run left before rank 0 goes on writing it.
        self.report = Report(options.json if is_first or options.resume else None, options.resume)
        if not is_first:
            self.report.file = None
        self.ranks.exchange(None, seconds=60)
        self.watchdog = Watchdog(options.timeout, self.give_up)
        signal.signal(signal.SIGTERM, lambda *_: self.give_up("another rank ended"))

    def give_up(self, reason):
        if self.report.begun:
            self.report.end("crash" if "ended" in reason else "hang", reason, 0)
        if self.ranks.rank == 0:
            self.print()
        os._exit(1)

    def print(self):
        self.report.print(self.options.list_refused, self.options.slow)

    def ops(self):
        from torch.testing._internal import common_methods_invocations as torch_samples
        # It would seed torch's generator before each call of a random operator: no two runs would differ.
        torch_samples.wrapper_set_seed = lambda op, *rest, **named: op(*rest, **named)
        wanted = set(self.options.ops.split(",")) if self.options.ops else None
        left_out = set(self.options.skip.split(",")) if self.options.skip else set()
        for op in torch_samples.op_db:
            names = {op.name, full_name(op)}
            if torch.float32 in op.supported_dtypes("cpu") and not names & left_out and (not wanted or names & wanted):
                yield op

    def seed_of(self, op):
        return zlib.crc32(full_name(op).encode()) + self.options.seed

    def samples(self, op):
        """(number, sample): spread over the first ones, the very first among them."""
        torch.manual_seed(self.seed_of(op))
        random.seed(self.seed_of(op))
        differentiable = op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
        found = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=differentiable), SAMPLES_SEEN))
        count = min(len(found), self.options.samples or len(found))
        return [(i, found[i]) for i in (len(found) * k // count for k in range(count))]

    def run(self):
        for op in self.ops():
            try:
                samples = self.samples(op)
            except Exception as error:  # noqa: BLE001 torch's sample generators may need what is not there
                print(f"no samples of {full_name(op)}: {error}", file=sys.stderr)
                continue
            for form, (number, sample) in itertools.product(self.options.forms.split(","), samples):
                name = full_name(op) + {"function": "", "inplace": " in place", "out": " out="}[form]
                if has_form(op, form, sample) and not self.report.has(name, number):
                    chooser = Chooser(self.axes, self.seed_of(op) + number)
                    self.try_sample(name, number, Trial(op, form, sample, self.tensors, chooser, self.own_draws))
        more_refused = self.report.refused_beyond(names_in(REFUSED))
        if self.ranks.rank == 0:
            self.print()
            for name in more_refused:
                print(f"refused, but {os.path.basename(REFUSED)} does not name it: {name}", flush=True)
        return 0 if self.report.is_good() and not more_refused else 1

    def try_sample(self, name, number, trial):
        if not trial.inputs:
            return  # nothing to distribute
        self.report.begin(name, number, str(trial))
        start = time.monotonic()
        with self.watchdog:
            mine = trial.run()
        outcome = agree(self.exchange(mine))
        is_drawn = outcome == Outcome("right", "drawn", outcome.fingerprint)
        if (is_drawn or outcome.kind != "right") and not self.mend(outcome) and is_drawn:
            outcome = Outcome("refused", "ranks drew different plain operands")
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
                self.give_up(f"no new world: {error}")
            return False


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", help="only these, by name or name.variant")
    parser.add_argument("--skip", help="not these")
    parser.add_argument("--samples", type=int, default=3, help="per operator; 0: all of the first %d" % SAMPLES_SEEN)
    parser.add_argument("--forms", default="function", help="of function,inplace,out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mesh", help="for example 2x2; else one axis of all ranks")
    parser.add_argument("--timeout", type=float, default=60, help="seconds per sample")
    parser.add_argument("--json", help="one line per sample, written as it ends")
    parser.add_argument("--resume", action="store_true", help="go on where --json ends; what was begun there is a crash")
    parser.add_argument("--list-refused", action="store_true")
    parser.add_argument("--slow", type=int, default=0, help="name so many slowest operators")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--plain", action="store_true", help="plain tensors in place of distributed ones: tests this program")
    return parser.parse_args(arguments)


def main(arguments):
    warnings.simplefilter("ignore")
    faulthandler.enable()
    torch.set_num_threads(1)
    return Suite(parse(arguments)).run()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # without a wait for peers that may be stuck
