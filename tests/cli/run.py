"""Runs the command line as a user would and compares what it prints.

A case is a line "$ tegula ...", the output (both streams), and "[exit N]" if N is not 0:

    $ tegula mesh "dp=2"
    mesh    (dp=2)
    ...

Usage: run.py <folder of tegula> <file with cases> [--update]
"""
import shlex
import subprocess
import sys


def split_cases(text):
    """(comments before the case, the call, what it should print) for each case."""
    cases, comments = [], []
    for line in text.splitlines():
        if line.startswith("$ "):
            cases.append((comments, line[2:], []))
            comments = []
        elif line.startswith("#"):
            comments.append(line)
        else:
            cases[-1][2].append(line)
    return [(before, call, "\n".join(lines).strip("\n")) for before, call, lines in cases]


def run(folder, call):
    words = shlex.split(call)
    done = subprocess.run([f"{folder}/{words[0]}", *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60, check=False)
    output = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
    return output + (f"\n[exit {done.returncode}]" if done.returncode else "")


def main(folder, path, *flags):
    with open(path, encoding="utf-8") as file:
        cases = split_cases(file.read())
    results = [(before, call, wanted, run(folder, call)) for before, call, wanted in cases]
    if "--update" in flags:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n\n".join("\n".join([*before, f"$ {call}", got]) for before, call, _, got in results) + "\n")
        return 0
    failures = [(call, wanted, got) for _, call, wanted, got in results if wanted != got]
    for call, wanted, got in failures:
        print(f"$ {call}\n--- wanted\n{wanted}\n--- got\n{got}\n")
    print(f"{len(results) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
