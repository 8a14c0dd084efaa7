"""A program made distributed prints the losses of the plain one, on any number of ranks.

Usage: porting.py <folder of the programs> <ranks>...
"""
import pathlib
import re
import subprocess
import sys
import tempfile

TOLERANCE = 2e-4  # float32, summed in another order, printed with four digits


def losses(*command):
    """[(step, loss)] as the program prints them; it leaves its model behind."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        if not (pathlib.Path(folder) / "rising.pt").is_file():
            sys.exit(f"{' '.join(command)} saved nothing")
    return [(int(step), float(loss)) for step, loss in re.findall(r"step (\d+)  loss ([\d.]+)", done.stdout)]


def main(folder, *counts):
    folder = pathlib.Path(folder)
    wanted = losses(str(folder / "porting_plain"))
    if len(wanted) < 5 or wanted[-1][1] > 0.8 * wanted[0][1]:
        sys.exit(f"the plain program did not learn: {wanted}")
    for ranks in counts:
        got = losses(str(folder / "tegula"), "run", "-n", ranks, str(folder / "porting_ported"))
        same = len(got) == len(wanted) and all(
            step == other and abs(loss - value) <= TOLERANCE for (step, loss), (other, value) in zip(got, wanted))
        print(f"{ranks} ranks: {'the same losses' if same else 'OTHER LOSSES'} {got}")
        if not same:
            sys.exit(f"plain: {wanted}")


if __name__ == "__main__":
    main(*sys.argv[1:])
