"""The comparison of communication.py as a page of Markdown."""
import collections
import json

from communication_cases import ALONG_A_CUT_DIM, axes_of, families
from communication_sides import letter_of

HEAD = """# Communication

What calls send here and by PyTorch {torch}'s DTensor, for the same operands placed alike, and for the same placement of
the result. This page was written{commit} by

```
TEGULA_PYTHON=build/venv/bin/python build/dev/bin/tegula rules --compare --output docs/communication.md{gathers}
```

The cases are data: `bench/peers/communication_cases.py`. Operands are float32 of about a mebibyte, on 2 ranks or 2 x 2.

**What is counted.** The bytes that a rank receives, as the mean of the ranks, whatever the algorithm of a
collective: of n ranks that put in b bytes each, one receives (n-1) b in an all-gather, 2 (n-1)/n b in an all-reduce,
(n-1)/n b in a reduce-scatter, an all-to-all and a broadcast. Of an all-to-all between neighbours (convolutions,
pooling, padding, flips, rolls, joins) all b are counted, since nothing in it stays on its rank. Where Tegula's
all-to-all evens out the shards of one dim (`diff`), or a join moves a cut first (`cat` of S(0) and S(1)), the figure
is too large: the log does not say what stays. Where a cut moves to another dim PyTorch gathers on CPUs, and uses an
all-to-all on GPUs; the all-to-all is counted.

**How to read a row.** "4,096 -> S(1)" is a call that receives 4,096 bytes and leaves its result cut along dim 1.
If the two leave it in different places, there are two comparisons. *tegula as there*: all that Tegula sends if its
result is then brought where PyTorch left its own; compare it with PyTorch's call. *PyTorch as here*: the reverse;
compare it with Tegula's call. To owe a sum costs nothing. A row "backward" is a forward and a backward pass of
`(result ** 3).sum()`, with each gradient brought where its operand lies. The last column says of Tegula's bytes:

| word | means |
| --- | --- |
| less, same, **more** | wherever the result is wanted |
| less, **more as there** | the result where Tegula leaves it costs less here; where PyTorch leaves it, less there |
| **more as there** | where Tegula leaves it both send the same |

"refuses" is an error of PyTorch's, "wrong" other values or shapes than on one rank, "hangs" a job that did not go on.
"""


VERDICTS = ("less", "same", "less, **more as there**", "**more as there**", "**more as here**", "**more**")


# Of calls that send more wherever the result is wanted, or as PyTorch leaves it.
NORM = "a norm is not left owed"
FLIP = "elements go to their owners; PyTorch moves the cut to another dim"
ROWS = "the rows that count are added up over all ranks, or the mean would be wrong with weights or ignored rows"
SUM = "what is whole is not made owed: the sum is paid"
WHY_MORE = {
    "_foreach_norm": NORM,
    "add": SUM,
    "add a bias": SUM,
    "cross_entropy": ROWS,
    "cross_entropy in loss_parallel": "the sum that the loss owes is paid by itself",
    "cross_entropy with weights": ROWS,
    "fftshift dim 0": FLIP,
    "flip dim 0": FLIP,
    "matrix_norm": NORM,
    "nansum of dim 0": "parts are added before NaNs are left out, or a part that is NaN would be lost",
    "nll_loss": ROWS,
    "norm": NORM,
    "one_hot": "the range of the classes is checked over all ranks",
    "pixel_shuffle": "the rule does not cut channels",
    "to RR": "the fastest plan by the cost model, not that of the fewest bytes",
    "to S0S1": "the fastest plan by the cost model, not that of the fewest bytes",
    "vector_norm of dim 0": NORM,
}


def in_thousands(number):
    return f"{number:,}"


def placements_text(lists):
    """S(0), R of one axis each; [S(0), R], [R, R] of two."""
    return ", ".join(axes[0] if len(axes) == 1 else f"[{', '.join(axes)}]" for axes in lists)


def as_written(letters):
    return [f"S({letter[1:]})" if letter[0] == "S" else letter for letter in letters]


class Row:
    """One case, with what each side sent."""

    def __init__(self, case, here, there):
        self.case, self.here, self.there = case, here, there

    @property
    def is_compared(self):
        return self.here["outcome"] == "right" and self.there["outcome"] == "right"

    @property
    def is_same_place(self):
        def letters(side):
            return [[letter_of(text) for text in axes] for axes in side["placements"]]

        return letters(self.here) == letters(self.there)

    @property
    def to_theirs(self):
        return self.here["bytes"] + self.here["afterwards"]

    @property
    def to_ours(self):
        return self.there["bytes"] + self.there["afterwards"]

    @property
    def verdict(self):
        if not self.is_compared:
            return ""
        ours = self.here["bytes"] - self.to_ours
        theirs = self.to_theirs - self.there["bytes"]
        if ours > 0 and theirs > 0:
            return "**more**"
        if theirs > 0:
            return ("less, " if ours < 0 else "") + "**more as there**"
        if ours > 0:
            return "**more as here**"
        return "same" if ours == theirs == 0 else "less"

    def side_text(self, side):
        if side["outcome"] == "ends the job":
            return "hangs"
        if side["outcome"] != "right":
            return side["outcome"]
        found = placements_text(side["placements"])
        return in_thousands(side["bytes"]) + (f" -> {found}" if found else "")

    def cells(self):
        operands = placements_text([as_written(letters) for letters in self.case.placements])
        if self.case.to:
            name = "to " + placements_text([as_written(axes_of(self.case.to))])
        else:
            name = f"`{self.case.call_name}`" + (" backward" if self.case.backward else "")
        is_moved = self.is_compared and not self.is_same_place
        moved = [in_thousands(self.to_theirs), in_thousands(self.to_ours)] if is_moved else ["", ""]
        return [name, operands, self.side_text(self.here), self.side_text(self.there), *moved, self.verdict]


def line_of(cells):
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def table_of(rows):
    lines = ["| call | operands | tegula | PyTorch | tegula as there | PyTorch as here | tegula sends |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [line_of(row.cells()) for row in rows]
    return "\n".join(lines) + "\n"


def more_of(rows):
    lines = ["| call | operands | tegula | PyTorch | tegula as there | PyTorch as here | why |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for verdict in reversed(VERDICTS):
        chosen = [row for row in rows if row.verdict == verdict and "more" in verdict]
        lines += [f"| {verdict} | | | | | | |"] if chosen else []
        for row in chosen:
            why = WHY_MORE.get(row.case.call_name, "") if not verdict.startswith("less") else ""
            lines.append(line_of([*row.cells()[:-1], why]))
    return "\n".join(lines) + "\n"


def summary_of(rows):
    def listed(words, counted):
        counts = collections.Counter(counted)
        return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])

    verdicts = listed(VERDICTS, (row.verdict for row in rows if row.is_compared))
    failures = listed(("refuses", "wrong", "hangs"), (row.side_text(row.there) for row in rows))
    return f"{len(rows)} cases. Tegula sends: {verdicts}. PyTorch otherwise: {failures or 'none'}.\n"


# Operators that gather

REASONS = {  # by the way in which the call was carried out
    "universal": "no rule covers the call",
    "link": "no tile has the view's elements",
    "decomposition": "a part of its decomposition gathers",
    "composite": "a part of what libtorch makes of it gathers",
    "algorithm": "its algorithm needs all of the operand",
    "rule": "its rule needs the dim whole, and there is no other to cut",
    "tile op": "it fills tiles from whole operands",
    "view": "no tile has the view's elements",
}


def gathering_in(path):
    """(operator, cuts that gather, cuts tried, the first of them)"""
    with open(path, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            trials = line.get("trials", [])
            gathering = [t for t in trials if t["gathered"]]
            if gathering:
                yield line["op"], len(gathering), len(trials), gathering[0]


def gathers_of(path):
    if not path:
        return ("`tegula rules --coverage --json FILE` counts them, and `tegula rules --compare --gathers FILE` lists "
                "them here, with the reason.\n")
    lines = ["From `tegula rules --coverage`: sample calls with one operand cut, one dim after the other.\n",
             "| operator | cuts that gather | for example | reason |", "| --- | --- | --- | --- |"]
    for name, count, tried, first in sorted(gathering_in(path)):
        shapes = ", ".join(str(shape) for shape in first["shapes"][:3])
        reason = next((REASONS[way] for way in REASONS if way in first["ways"]), "")
        lines.append(f"| `{name}` | {count} of {tried} | {first['cut']} of {shapes} | {reason} |")
    return "\n".join(lines) + "\n"


def text_of(rows, commit, gathers):
    import torch
    head = HEAD.format(torch=torch.__version__.partition("+")[0], commit=f" at commit {commit}" if commit else "",
                       gathers=" --gathers FILE" if gathers else "")
    parts = [head, summary_of(rows)]
    chosen = [row for row in rows if row.case.key in ALONG_A_CUT_DIM]
    if chosen:
        parts.append("## Along a cut dim\n\nCalls that distributed tensors tend to gather for; the tables below have "
                     "the rest.\n\n" + table_of(chosen))
    for family in families():
        members = [row for row in rows if row.case.family == family]
        if members:
            parts.append(f"## {family[0].upper()}{family[1:]}\n\n" + table_of(members))
    if any("more" in row.verdict for row in rows):
        parts.append("## Where more is sent here\n\n" + more_of(rows))
    parts.append("## Operators that still gather\n\n" + gathers_of(gathers))
    return "\n".join(parts)
