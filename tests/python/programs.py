"""Programs written for PyTorch's DTensor print the same under PyTorch and, unchanged, under `python -m tegula`.

    python programs.py --ranks 4                 # all of programs/, side by side
    python programs.py --ranks 2 tp_mlp --alone  # one, by a torchrun of its own

torchrun starts the ranks once for PyTorch and once for Tegula, and each runs the programs one after the other.
Numbers may differ by rounding, words may not.
"""
import argparse
import contextlib
import io
import json
import math
import pathlib
import runpy
import subprocess
import sys
import tempfile
import traceback

FOLDER = pathlib.Path(__file__).resolve().parent / "programs"


def run_inside(names, output):
    """In each rank: runs the programs, rank 0 writes down what they printed."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.init_process_group = dist.destroy_process_group = lambda *args, **kwargs: None  # one for all programs
    import torch.distributed.tensor

    printed = {"whose tensors": torch.distributed.tensor.DTensor.__module__.split(".")[0]}
    for name in names:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            try:
                runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
            except Exception:
                text.write(traceback.format_exc())
                printed[name] = text.getvalue()
                break  # the ranks may be out of step
        printed[name] = text.getvalue()
    if dist.get_rank() == 0:
        pathlib.Path(output).write_text(json.dumps(printed))


def printed_by(ranks, under, names):
    """What the programs print, by name."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "printed.json"
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *under,
             __file__, "--inside", str(output), *names], capture_output=True, text=True)
        if not output.exists():
            return {name: "nothing:\n" + done.stdout + done.stderr for name in names}
        return json.loads(output.read_text())


def printed_alone(ranks, under, name):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
                           *under, str(FOLDER / f"{name}.py")], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


def are_alike(mine, theirs):
    """Whether two words are the same, or numbers that differ by rounding."""
    if mine == theirs:
        return True
    try:
        return math.isclose(float(mine), float(theirs), rel_tol=2e-4, abs_tol=2e-5)
    except ValueError:
        return False


def words_of(text):
    for sign in "[](),'":
        text = text.replace(sign, " ")
    return text.split()


def differ(mine, theirs):
    """The first place where two texts differ; None if they do not."""
    for ours, other in zip(mine.splitlines(), theirs.splitlines()):
        a, b = words_of(ours), words_of(other)
        if len(a) != len(b) or not all(map(are_alike, a, b)):
            return f"tegula:  {ours}\npytorch: {other}"
    if len(mine.splitlines()) != len(theirs.splitlines()):
        return f"tegula:\n{mine}\npytorch:\n{theirs}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--inside")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or sorted(path.stem for path in FOLDER.glob("*.py"))
    if options.inside:
        return run_inside(names, options.inside)
    if options.alone:
        theirs, mine = ({name: printed_alone(options.ranks, under, name) for name in names} for under in ([], ["-m", "tegula"]))
    else:
        theirs, mine = (printed_by(options.ranks, under, names) for under in ([], ["-m", "tegula"]))
        whose = theirs.get("whose tensors"), mine.get("whose tensors")
        if whose != ("torch", "tegula"):
            print(f"the programs ran on tensors of {whose}")
            return 1
    failed = 0
    for name in names:
        texts = mine.get(name, "not run"), theirs.get(name, "not run")
        wrong = differ(*texts) if texts[1].strip() and "Traceback" not in texts[1] else f"pytorch: {texts[1]}"
        failed += wrong is not None
        print(f"{name}: " + ("alike, " + str(len(texts[0].splitlines())) + " lines" if wrong is None else wrong))
        if wrong is not None and "Traceback" in texts[0]:
            print(texts[0])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
