"""What came of the samples of torch's operators, modules or optimizers."""
import collections
import json
import os

BAD = ("error", "wrong", "out of step", "hang", "crash")
OUTCOMES = ("right", "refused", *BAD)


def operator_in(name):
    """The operator's name without its form."""
    return name.removesuffix(" in place").removesuffix(" out=")


def percent(count, total):
    return f"{100 * count / max(1, total):.2f}%"


def names_in(path):
    with open(path, encoding="utf-8") as lines:
        return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


class Report:
    """Outcomes by operator, module or optimizer (`noun`); rank 0 also writes each to a file as it comes."""

    def __init__(self, noun, path, resume):
        self.noun = noun
        self.outcomes = collections.defaultdict(list)  # op -> [(sample, outcome, message, inputs)]
        self.milliseconds = collections.Counter()
        self.cuts = collections.Counter()  # "kept", "lost": what became of the operands' cuts
        self.begun = None
        if resume:
            self.read(path)
        self.file = open(path, "a" if resume else "w", encoding="utf-8") if path else None

    def read(self, path):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as lines:
                for line in map(json.loads, lines):
                    if line["outcome"] == "begun":
                        self.note_crash()
                        self.begun = line
                    else:
                        self.begun = None
                        self.note(line)
        self.note_crash()

    def note_crash(self):
        """What was begun and did not end, if there is such a sample."""
        if self.begun:
            self.note({**self.begun, "outcome": "crash", "message": "the process died"})
            self.begun = None

    def note(self, line):
        self.outcomes[line["op"]].append((line["sample"], line["outcome"], line["message"], line["inputs"]))
        self.milliseconds[line["op"]] += line.get("ms", 0)
        if line.get("cut"):
            self.cuts["kept" if line["cut"] == "kept" and line["outcome"] == "right" else "lost"] += 1

    def has(self, name, sample):
        return any(entry[0] == sample for entry in self.outcomes[name])

    def begin(self, name, sample, inputs, cut):
        self.begun = {"op": name, "sample": sample, "inputs": inputs, "cut": cut, "outcome": "begun", "message": ""}
        self.write(self.begun)

    def end(self, kind, message, milliseconds):
        line = {**self.begun, "outcome": kind, "message": message, "ms": round(milliseconds, 1)}
        self.begun = None
        self.note(line)
        self.write(line)

    def write(self, line):
        if self.file:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()

    def counts(self):
        return collections.Counter(outcome for entries in self.outcomes.values() for _, outcome, _, _ in entries)

    def refused_beyond(self, names):
        """Names that were refused and are not among these."""
        refused = {operator_in(op) for op, entries in self.outcomes.items() if any(e[1] == "refused" for e in entries)}
        return sorted(refused - set(names))

    def is_good(self):
        return not any(self.counts()[kind] for kind in BAD)

    def print(self, list_refused, slow):
        counts = self.counts()
        entries = {op: e for op, e in self.outcomes.items() if e}
        right_ops = sum(all(outcome == "right" for _, outcome, _, _ in e) for e in entries.values())
        for op, samples in sorted(entries.items()):
            for kind in OUTCOMES[1:]:
                self.print_kind(op, kind, [s for s in samples if s[1] == kind], list_refused)
        for op, ms in self.milliseconds.most_common(slow):
            print(f"{ms / 1000:6.1f} s  {op}")
        print("samples " + ", ".join(f"{counts[kind]} {kind}" for kind in OUTCOMES if counts[kind])
              + f": {percent(counts['right'], counts.total())} of {counts.total()} right")
        kept, cut = self.cuts["kept"], self.cuts.total()
        print(f"kept a cut: {kept} of {cut} ({percent(kept, cut)}) samples with a cut operand: a right result is cut")
        print(f"{self.noun}s {right_ops} of {len(entries)} right ({percent(right_ops, len(entries))})", flush=True)

    @staticmethod
    def print_kind(op, kind, samples, list_refused):
        if samples and (kind != "refused" or list_refused):
            sample, _, message, inputs = samples[0]
            print(f"{kind:11} {op} ({len(samples)}x, first sample {sample}: {inputs})\n            {message[:600]}")
