"""One rank of one side: runs cases, and writes what came of each as a line of JSON.

communication.py starts it; a case that ends the rank, or makes ranks differ, ends the job, which is started again
behind it.
"""
import argparse
import contextlib
import datetime
import faulthandler
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist

import communication_cases
from communication_cases import axes_of
from communication_sides import PyTorch, Tegula, letter_of

TIMEOUT = 120  # seconds that a rank waits for another: PyTorch may take a minute to decide what to do with a call


class Disagreement(Exception):
    """Ranks met different things."""


# One case


def results_of(case, operands, placed_as_operand):
    """A list of what the call returns, or of the gradients; with None for operands that get none."""
    if not case.backward:
        results = case.call(*operands)
        return list(results) if isinstance(results, (list, tuple)) else [results]
    leaves = [o.detach().requires_grad_(o.is_floating_point()) for o in operands]
    result = case.call(*leaves)
    (result ** 3).sum().backward()  # squares would leave no gradient of what a norm made
    return [leaf.grad if leaf.grad is None else placed_as_operand(leaf.grad, i) for i, leaf in enumerate(leaves)]


def place(side, tensor, letters):
    """Each rank of an axis that owes has its share of the sum: exact, since there are two."""
    placements = [side.placement(letter) for letter in letters]
    if "P" not in letters:
        return side.cut(tensor, placements)
    share = tensor / 2 ** letters.count("P")
    settled = [side.placement("R" if letter == "P" else letter) for letter in letters]
    return side.from_tile(side.tile(side.cut(share, settled)), placements, like=tensor)


def bring(side, tensor, letters):
    """The tensor placed so; but a sum that it should owe is left as it is: to owe costs nothing."""
    now = side.placements_of(tensor)
    wanted = [old if letter == "P" or letter_of(side.text_of(old)) == letter else side.placement(letter)
              for old, letter in zip(now, letters)]
    return tensor if wanted == now else side.moved(tensor, wanted)


def is_close(mine, plain):
    if not (plain.is_floating_point() or plain.is_complex()):
        return torch.equal(mine, plain)
    return torch.allclose(mine, plain, rtol=1e-4, atol=1e-6 + 1e-5 * plain.abs().max().item())


def compare(side, results, expected):
    """"" if the results are those of the plain call."""
    for mine, plain in zip(results, expected, strict=True):
        if side.is_placed(mine):
            mine = side.whole(mine)
        if isinstance(plain, torch.Tensor):
            if mine.shape != plain.shape or mine.dtype != plain.dtype:
                return f"{mine.dtype} {list(mine.shape)} instead of {plain.dtype} {list(plain.shape)}"
            if not is_close(mine, plain):
                return "other values than on one rank"
        elif mine != plain and not (isinstance(plain, float) and abs(mine - plain) < 1e-2 * (1 + abs(plain))):
            return f"{mine} instead of {plain}"
    return ""


def run(case, side, wanted):
    """What a case sends: in the call, and to bring its results where `wanted` says."""
    operands = case.make_operands()
    expected = results_of(case, [o.clone() for o in operands], lambda gradient, _: gradient)
    placed = [place(side, o, letters) for o, letters in zip(operands, case.placements)]
    in_call, afterwards = [], []
    with side.switches(case), side.counted(in_call):
        results = results_of(case, placed, lambda gradient, i: bring(side, gradient, case.placements[i]))
        if case.to:
            results = [bring(side, r, axes_of(case.to)) for r in results]
    tensors = [r for r in results if side.is_placed(r)]
    found = [[side.text_of(p) for p in side.placements_of(t)] for t in tensors]
    try:
        with side.counted(afterwards):
            for tensor, texts in zip(tensors, wanted or []):
                bring(side, tensor, [letter_of(text) for text in texts])
        wrong = compare(side, results, expected)
    except Exception as error:  # noqa: BLE001 the call gave something that cannot be used
        wrong = in_short(error)
    outcome = {"outcome": "wrong", "message": wrong} if wrong else {"outcome": "right"}
    return {**outcome, "placements": found, "bytes": sum(in_call), "afterwards": sum(afterwards)}


def in_short(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def try_case(case, side, wanted):
    try:
        return run(case, side, wanted)
    except Exception as error:  # noqa: BLE001 whatever a side throws is an outcome
        return {"outcome": "refuses", "message": in_short(error)}


# All of them


class Board:
    """Where ranks tell each other what they met, beside the sides."""

    def __init__(self, path):
        self.rank, self.ranks = int(os.environ["TEGULA_RANK"]), int(os.environ["TEGULA_WORLD_SIZE"])
        self.store = dist.FileStore(path, self.ranks)
        self.store.set_timeout(datetime.timedelta(seconds=TIMEOUT))

    def all_of(self, name, mine):
        self.store.set(f"{name} {self.rank}", json.dumps(mine))
        return [json.loads(self.store.get(f"{name} {rank}")) for rank in range(self.ranks)]


def agreed(outcomes):
    """One outcome of all ranks': the mean of what they received."""
    if len({o["outcome"] for o in outcomes}) > 1:
        raise Disagreement
    one = dict(outcomes[0])
    for key in ("bytes", "afterwards"):
        if key in one:
            one[key] = round(sum(o[key] for o in outcomes) / len(outcomes))
    return one


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=("tegula", "pytorch"), required=True)
    parser.add_argument("--mesh", required=True, help="e.g. 2x2")
    parser.add_argument("--work", required=True, help="{case: where its results are brought}, as JSON")
    parser.add_argument("--results", required=True)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(options.work, encoding="utf-8") as file:
        work = json.load(file)
    shape = tuple(int(size) for size in options.mesh.split("x"))
    board = Board(os.environ["PEER_STORE"] + ".board")
    side = {"tegula": Tegula, "pytorch": PyTorch}[options.side](shape, TIMEOUT)
    cases = {case.key: case for case in communication_cases.CASES}
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(open(options.results if board.rank == 0 else os.devnull, "a", encoding="utf-8"))
        silence = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for key, wanted in work.items():
            print(json.dumps({"case": key, "outcome": "ends the job"}), file=results, flush=True)
            faulthandler.dump_traceback_later(3 * TIMEOUT, exit=True, file=silence)
            outcome = agreed(board.all_of(key, try_case(cases[key], side, wanted)))
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps({"case": key, **outcome}), file=results, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 the job is started again
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # gloo can crash a process that just ends
