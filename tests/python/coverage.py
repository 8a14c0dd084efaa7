"""Counts the aten overloads that leave their operands where they are.

    tegula rules --coverage [--ops aten.add.Tensor,aten.sort] [--list FILE ...] [--json FILE]

The calls that torch's own samples make (aten_calls.py) are replayed on two ranks with one operand cut
along one dim, every operand and dim in turn, the others replicated; of a list all members are cut alike.
An operator that writes to its operands has those cut, an operator over lists also with all lists cut alike:
whatever is written stays where it is. What is passed as out= is placed as the plain form places its result, or
if there is no plain form as the operand that is cut, where it has its shape.

What a rank receives during the call, nested calls included, is compared with the other ranks' part of the
cut operand. The operand is *gathered* if all that is received by all-gathers, reductions, broadcasts and
messages together is as much, or what one all-to-all brings: a cut that moves to another dim brings half of
it. Operands are made large, so that totals are small beside them; where the operator does not take larger
ones and the operand has less than SMALL bytes, reductions are taken for totals. A view that reads its base
through a link is read once, since that is when it gathers. A sum that the result owes is not counted: whoever
needs the whole pays, once.

An overload is

    covered      nothing is gathered: by a rule, a view, a tile op (each rank works on its own tile), a
                 decomposition (other operators on distributed tensors) or an algorithm (tiles and exchanges)
    gathers      something is; gathering.txt says why
    refused      a tegula.UsageError
    wrong        other values than plain, ranks out of step, a hang, a crash
    no operand   it takes no tensor: there is nothing to cut
    no sample    there is none with an operand of two elements
"""
import argparse
import collections
import fnmatch
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import warnings

if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"  # torch's samples walk through sets: the same samples in every run
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
from torch.utils._pytree import tree_flatten, tree_map

import aten_calls
from aten_calls import attempt, by_name, copied, from_bytes, is_out, is_written, overload_named, tensors_of
from placing import Distributed
from ranks import Lost, Ranks
from suite import Watchdog
from trial import Outcome, Wrong, agree, compare_tensors, compare_values

REASONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gathering.txt")
SMALL = 1024
CUTS_TRIED = 8  # of one call
UNSET = ("empty", "resize", "set_", "_ctc_loss", "_embedding_bag")  # some of what they give was never written
WRONG_IN_TORCH = ("aten.binary_cross_entropy.out",)  # reduces elements that were never written


# Which operands are cut


def operands_of(func, call):
    """{place: tensors} of the arguments that are tensors, or lists of them; a place is a number or a name.
    Of a call that only writes, what it writes to."""
    args, kwargs = call
    found = {place: tensors_of(value) for place, value in [*enumerate(args), *kwargs.items()]}
    found = {place: tensors for place, tensors in found.items() if any(t.ndim for t in tensors)}
    read = {place: tensors for place, tensors in found.items() if not is_out(argument_at(func, place))}
    return read or found


def argument_at(func, place):
    arguments = func._schema.arguments
    return arguments[place] if isinstance(place, int) else next(a for a in arguments if a.name == place)


class Cut:
    """Some arguments cut along one dim."""

    def __init__(self, places, dim, operand):
        self.places, self.dim, self.operand = places, dim, operand

    def __str__(self):
        return f"operand {self.operand} along dim {self.dim}"

    def may_cut(self, tensor):
        return tensor.ndim > self.dim and tensor.shape[self.dim] > 1

    def bytes_elsewhere(self, call, rank):
        """Of the operand's elements, those on the other rank. Rank 0 holds the larger part."""
        return sum((t.shape[self.dim] + rank) // 2 * t.numel() // t.shape[self.dim] * t.element_size()
                   for t in self.tensors(call) if self.may_cut(t))

    def tensors(self, call):
        args, kwargs = call
        return tensors_of(args[self.operand] if isinstance(self.operand, int) else kwargs[self.operand])


def cuts_of(func, call):
    operands = operands_of(func, call)
    written = [p for p in operands if is_written(argument_at(func, p))]
    cuts = []
    for place, tensors in operands.items():
        if written and place not in written:
            continue
        for dim in range(max(t.ndim for t in tensors)):
            same = [p for p, others in operands.items() if shapes(others) == shapes(tensors)]
            groups = [[p for p in same if p in written] if written else [place]]
            if written and len(tensors) > 1:
                groups.append(same)
            for group in {tuple(g): g for g in groups}.values():
                cut = Cut(group, dim, place)
                if any(cut.may_cut(t) for t in tensors):
                    cuts.append(cut)
    return cuts[:: max(1, -(-len(cuts) // CUTS_TRIED))]


def shapes(tensors):
    return [t.shape for t in tensors]


def plain_form(func):
    """The overload that takes the same arguments but for out=, and writes to none. None if there is none."""
    packet = getattr(torch.ops.aten, func._schema.name.partition("::")[2])
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not is_out(a)]
    for overload in packet.overloads():
        other = getattr(packet, overload)
        arguments = other._schema.arguments
        if [(a.name, str(a.type)) for a in arguments] == wanted and not any(map(is_written, arguments)):
            return other
    return None


# One call


class Replay:
    def __init__(self, tensors, ranks):
        self.tensors, self.ranks, self.tg = tensors, ranks, tensors.tg

    def place(self, tensor, placement):
        return self.tg.distribute_tensor(tensor, self.tensors.mesh, [placement], src_data_rank=None)

    def placed(self, call, cut):
        def place_argument(place, value):
            is_cut = place in cut.places
            return tree_map(
                lambda leaf: leaf if not isinstance(leaf, torch.Tensor) else self.place(
                    leaf, self.tg.Shard(cut.dim) if is_cut and cut.may_cut(leaf) else self.tg.Replicate()), value)

        args, kwargs = call
        return (tuple(place_argument(i, a) for i, a in enumerate(args)),
                {name: place_argument(name, value) for name, value in kwargs.items()})

    def place_outs(self, func, call, cut):
        """out= placed as the plain form's results are, or as the operand that is cut."""
        outs = [a.name for a in func._schema.arguments if is_out(a) and a.name in call[1]]
        plain = plain_form(func) if outs else None
        if plain is None:
            operand = cut.tensors(call)[0]
            for out in outs:
                if isinstance(call[1][out], torch.Tensor) and call[1][out].shape == operand.shape:
                    call[1][out] = self.tg.redistribute(call[1][out], placements=self.tg.placements(operand))
            return
        args, kwargs = call
        given = by_name(func, args, kwargs)
        defaults = {a.name: a.default_value for a in func._schema.arguments
                    if a.has_default_value() and a.name not in given}  # the plain form may have none
        inputs, named = copied((args, {**defaults, **{n: v for n, v in kwargs.items() if n not in outs}}))  # it may write to them
        results = tensors_of(attempt(lambda: plain(*inputs, **named)))
        if not results:
            return
        for out in outs:
            def place_like_result(leaf):
                result = results.pop(0)
                return self.tg.redistribute(leaf, placements=self.tg.placements(result)) if self.tg.is_dtensor(result) else leaf

            kwargs[out] = tree_map(place_like_result, kwargs[out])

    def run(self, func, call, cut):
        """(ways, collectives as (kind, ranks, bytes), bytes of the result)"""
        torch.manual_seed(0)
        plain = copied(call)
        expected = func(*plain[0], **plain[1])
        args, kwargs = self.placed(copied(call), cut)
        self.place_outs(func, (args, kwargs), cut)
        world = self.tg._world.this_world()
        self.tg._tegula.forget_decisions(world)
        with self.tg.CommLog() as log:
            result = func(*args, **kwargs)
            ways = self.tg._tegula.ways_of(world, *name_in_dispatcher(func))
            if ways == ["decomposition"] and self.tg._tegula.decision_count(world) == 1:
                ways = ["algorithm"]
            if "link" in ways:
                for view in tensors_of(result):
                    view.clone()
        self.compare(func, (result, args, kwargs), (expected, *plain))
        given = sum(t.nbytes for t in tensors_of(expected))
        return ways or ["composite"], [(e.kind, e.ranks, e.bytes) for e in log.entries()], given

    def compare(self, func, actual, expected):
        is_set = str(func) not in WRONG_IN_TORCH and not any(word in func._schema.name for word in UNSET)
        has_values = is_set and not is_random(func)
        ours, plain = (tree_flatten(tree)[0] for tree in (actual, expected))
        # all before any is compared: the others may find nothing wrong, and go on
        ours = [self.tensors.whole(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in ours]
        for i, (mine, theirs) in enumerate(zip(ours, plain, strict=True)):
            if isinstance(theirs, torch.Tensor):
                compare_tensors(f"tensor {i}", mine, theirs, has_values)
            elif has_values:
                compare_values(f"value {i}", mine, theirs)


def name_in_dispatcher(func):
    return func._schema.name, func._schema.overload_name


def is_random(func):
    return torch.Tag.nondeterministic_seeded in func.tags


def received(kind, ranks, sent):
    """Bytes that come to a rank, of its input's; in an all-to-all, of the inputs of the other one."""
    others = ranks - 1
    return {"all_reduce": 2 * others * sent / ranks, "reduce_scatter": others * sent / ranks,
            "all_to_all": others * sent / ranks, "all_gather": others * sent, "barrier": 0}.get(kind, sent)


def is_gathered(entries, elsewhere, given, is_small):
    """Whether what came is as much as the other ranks hold of the operand. A cut may move in the result, whose
    bytes are given: reals that become complex are twice as large."""
    moved = [received(*entry) for entry in entries if entry[0] == "all_to_all"]
    totals = ("all_reduce", "reduce_scatter") if is_small else ()
    rest = sum(received(*entry) for entry in entries if entry[0] not in ("all_to_all", *totals))
    return elsewhere > 0 and (rest >= elsewhere or max([0, *moved]) >= max(elsewhere, given / 2))


def all_to_alls(entries):
    """Their inputs' bytes, as many as a message holds."""
    return [sent for kind, _, sent in entries if kind == "all_to_all"][:200]


def with_inputs(entries, others):
    """The entries, all-to-alls with the other rank's inputs: from these comes what it sends."""
    if len(all_to_alls(entries)) != len(others):
        return entries
    others = iter(others)
    return [(kind, ranks, next(others, sent) if kind == "all_to_all" else sent) for kind, ranks, sent in entries]


# All of them, on the ranks of a job


class Suite:
    def __init__(self, options):
        self.options = options
        self.ranks = Ranks()
        self.tensors = Distributed((self.ranks.size,), options.timeout / 2)
        self.replay = Replay(self.tensors, self.ranks)
        self.file = open(options.json, "a", encoding="utf-8") if self.ranks.rank == 0 else None
        self.watchdog = Watchdog(options.timeout, lambda reason: os._exit(1))

    def write(self, line):
        if self.file:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()

    def run(self):
        with open(self.options.calls, "rb") as file:
            calls = pickle.load(file)
        done = names_in(self.options.json)
        self.ranks.exchange(None, seconds=60)
        for name in sorted(calls):
            if name in done or not is_wanted(name, self.options.ops):
                continue
            self.write({"op": name, "begun": True})
            self.write({"op": name, "trials": self.try_overload(overload_named(name), from_bytes(calls[name]))})

    def try_overload(self, func, calls):
        trials = []
        for call, larger in calls:
            for cut in cuts_of(func, larger or call):
                trial = self.try_cut(func, larger or call, cut, larger is None)
                # repeated values have more than one right answer, and repeated indices may be none
                if trial["outcome"] in ("wrong", "out of step") and larger:
                    trial = self.try_cut(func, call, cut, True)
                trials.append(trial)
        return trials

    def try_cut(self, func, call, cut, as_sampled):
        ways, entries, given = [], [], 0
        elsewhere = cut.bytes_elsewhere(call, self.ranks.rank)
        with self.watchdog:
            try:
                ways, entries, given = self.replay.run(func, call, cut)
                mine = Outcome("right")
            except Wrong as difference:
                mine = Outcome("wrong", str(difference))
            except Exception as error:  # noqa: BLE001 whatever an operator throws is an outcome
                kind = "refused" if self.tensors.is_refusal(error) else "error"
                mine = Outcome(kind, f"{type(error).__name__}: " + " ".join(str(error).split()))
        is_small = as_sampled and sum(t.nbytes for t in cut.tensors(call)) < SMALL
        everyone = self.exchange([mine.kind, mine.message[:600], all_to_alls(entries)])
        outcome = agree([Outcome(kind, message) for kind, message, _ in everyone])
        entries = with_inputs(entries, everyone[1 - self.ranks.rank][2])
        gathered = any(self.exchange(is_gathered(entries, elsewhere, given, is_small)))
        if outcome.kind != "right":
            self.mend(outcome)
        return {"cut": str(cut), "operand": list(cut.tensors(call)[0].shape), "shapes": [list(t.shape) for t in tensors_of(call)][:6], "outcome": outcome.kind,
                "message": outcome.message, "ways": ways, "gathered": gathered,
                "received": int(sum(received(*entry) for entry in entries)), "elsewhere": elsewhere}

    def exchange(self, message):
        try:
            return self.ranks.exchange(message, 2 * self.options.timeout)
        except Lost:
            os._exit(1)

    def mend(self, outcome):
        with self.watchdog:
            works = outcome.kind != "out of step" and self.tensors.works()
            if not all(self.exchange(works)):
                self.tensors.renew()


# The report


def is_wanted(name, ops):
    """Whether a name is among those asked for: aten.add.Tensor, aten.add or add."""
    if not ops:
        return True
    packet = name.rpartition(".")[0]
    return any(op in (name, packet, packet.partition(".")[2]) for op in ops.split(","))


def lines_of(path):
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def names_in(path):
    return {line["op"] for line in lines_of(path)}


def results_in(path):
    """{overload: trials}; of one that was begun and did not end, a crash."""
    results = {}
    for line in lines_of(path):
        results[line["op"]] = line.get("trials", [{"outcome": "crash", "message": "the process ended, or did not",
                                                   "cut": "", "operand": [], "shapes": [], "ways": [], "gathered": False}])
    return results


def is_small(trial):
    """Whether the operand that is cut is a quarter of the largest one or less: weights, indices, numbers per channel."""
    largest = max((math.prod(shape) for shape in trial["shapes"]), default=0)
    return 4 * math.prod(trial["operand"]) <= largest


def is_row(trial):
    """Whether no dim but the cut one has two elements or more: there is none to move the cut to."""
    return sum(size > 1 for size in trial["operand"]) <= 1


def reasons_in(path):
    """[(pattern, reason)]"""
    with open(path, encoding="utf-8") as lines:
        return [tuple(part.strip() for part in line.split("#", 1)) for line in lines if line.startswith("aten")]


def reason_for(name, trials, reasons):
    """Why the overload gathers; none if nobody knows."""
    left = [t for t in trials if t["gathered"] and not is_small(t) and not is_row(t)]
    if left:
        return next((why for pattern, why in reasons if fnmatch.fnmatch(name, pattern)), None)
    whys = {"a small operand goes to where the large one is" if is_small(t) else "one row: there is no dim to move the cut to"
            for t in trials if t["gathered"]}
    return "; ".join(sorted(whys))


def verdict_on(trials):
    """(class, reason)"""
    if not trials:
        return "no sample", ""
    for kind in ("wrong", "out of step", "crash", "error", "refused"):
        for trial in trials:
            if trial["outcome"] == kind:
                where = f"{trial['cut']} of {trial['shapes']}"
                return ("refused" if kind == "refused" else "wrong"), f"{kind}, {where}: {trial['message'][:160]}"
    gathering = [t for t in trials if t["gathered"]]
    if gathering:
        first = gathering[0]
        return "gathers", (f"{len(gathering)} of {len(trials)} cuts, first {first['cut']} of {first['shapes']}: "
                           f"{first['received']:,} bytes come, {first['elsewhere']:,} are elsewhere; {', '.join(first['ways'])}")
    ways = {way for trial in trials for way in trial["ways"]}
    order = ("universal", "composite", "decomposition", "algorithm", "link", "tile op", "view", "rule")
    return next(way for way in order if way in ways), ""


COVERED = ("rule", "view", "link", "tile op", "algorithm", "decomposition", "composite", "universal")


def verdict_without_sample(name):
    takes_tensors = any("Tensor" in str(argument.type) for argument in overload_named(name)._schema.arguments)
    return ("no sample" if takes_tensors else "no operand"), ""


def print_totals(title, verdicts):
    counts = collections.Counter(kind for kind, _ in verdicts.values())
    covered = sum(counts[kind] for kind in COVERED)
    print(f"{title}: {covered} of {len(verdicts)} overloads covered ("
          + ", ".join(f"{counts[kind]} by {kind}" for kind in COVERED if counts[kind]) + ")"
          + "".join(f"; {counts[kind]} {kind}" for kind in ("gathers", "refused", "wrong", "no operand", "no sample")
                    if counts[kind]))


def listed_in(path):
    with open(path, encoding="utf-8") as lines:
        words = [line.split() for line in lines]
    return [w[0] for w in words if w and w[0].startswith("aten.")]


def report(path, options):
    results = results_in(path)
    verdicts = {name: verdict_on(trials) for name, trials in results.items()}
    reasons = reasons_in(REASONS)
    unexplained = []
    for name, (kind, text) in verdicts.items():
        if kind == "gathers":
            why = reason_for(name, results[name], reasons)
            verdicts[name] = kind, f"{why or 'NO REASON'}\n           {text}"
            unexplained += [name] if why is None else []
    lists = {os.path.basename(file): listed_in(file) for file in options.list}
    shown = {name for names in lists.values() for name in names} if lists else set(verdicts)
    for kind in ("wrong", "refused", "gathers", "no sample"):
        for name, (found, reason) in sorted(verdicts.items()):
            if found == kind and (name in shown or kind == "wrong") and (reason or lists):
                print(f"{kind:10} {name}\n           {reason}" if reason else f"{kind:10} {name}")
    if options.names:
        for name, (found, _) in sorted(verdicts.items()):
            if found in COVERED and name in shown:
                print(f"{found:13} {name}")
    print_totals("all", verdicts)
    for file, names in lists.items():
        wanted = [n for n in names if is_wanted(n, options.ops)]
        known = {n: verdicts.get(n, ("no sample", "")) for n in wanted}
        print_totals(file, {n: verdict_without_sample(n) if v[0] == "no sample" else v for n, v in known.items()})
    for name in sorted(unexplained):
        print(f"gathers, but {os.path.basename(REASONS)} does not say why: {name}")
    return 1 if unexplained or any(kind == "wrong" for kind, _ in verdicts.values()) else 0


def drive(options):
    """Records the calls, replays them by ranks, and starts these again behind what ends them."""
    folder = tempfile.mkdtemp(prefix="tegula-coverage-")
    calls = options.calls or os.path.join(folder, "calls")
    results = options.json or os.path.join(folder, "results")
    if not os.path.exists(calls):
        aten_calls.make_calls(calls, lambda name: options.calls or is_wanted(name, options.ops))
    if options.json and os.path.exists(results):
        os.unlink(results)
    command = [options.tegula, "run", "-n", "2", sys.executable, __file__, "--calls", calls, "--json", results,
               "--timeout", str(options.timeout), *(["--ops", options.ops] if options.ops else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TEGULA_LOG": "error"}
    begun = None
    while subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        before, begun = begun, names_in(results)
        if begun == before:
            sys.exit("the ranks do not start: " + " ".join(command))
    return report(results, options)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", help="only these, for example aten.add.Tensor,sort")
    parser.add_argument("--list", action="append", default=[], help="a file of overloads to count against")
    parser.add_argument("--names", action="store_true", help="name what is covered, too")
    parser.add_argument("--calls", help="a file to keep the recorded calls in, or to take them from")
    parser.add_argument("--json", help="one line per overload, with what came of each cut")
    parser.add_argument("--timeout", type=float, default=20, help="seconds per call")
    parser.add_argument("--tegula", default="tegula", help="the command line that starts ranks")
    return parser.parse_args(arguments)


def main(arguments):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options = parse(arguments)
    if "TEGULA_RANK" not in os.environ:
        return drive(options)
    with torch.no_grad():
        Suite(options).run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # without a wait for peers that may be stuck
