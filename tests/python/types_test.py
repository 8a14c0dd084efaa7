"""The types that the package states: they are those of the functions, and a checker finds wrong calls by them.

Ends with code 77 where mypy is not installed.
"""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

if importlib.util.find_spec("mypy") is None:
    sys.exit(77)
HERE = pathlib.Path(__file__).resolve().parent


def run(*arguments):
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=cache)
    print(done.stdout + done.stderr)
    return done.returncode


def main():
    # Wrong calls in it are marked; a mark that is not needed is an error.
    wrong = run("mypy", "--strict", "--follow-imports=silent", "--no-incremental", str(HERE / "typed" / "program.py"))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as allowed:
        allowed.write("\n".join([
            r"tegula\._.*", r"tegula\.(dtensor|hf)(\..*)?",  # not typed
            r"tegula\.[A-Z]\w*", r"tegula\.\w+\.__init__",  # what pybind11 adds to every class: a metaclass, *args
        ]))
        allowed.flush()
        wrong += run("mypy.stubtest", "tegula", "--ignore-missing-stub", "--ignore-unused-allowlist", "--allowlist", allowed.name)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
