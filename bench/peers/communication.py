"""What calls send here and by PyTorch's DTensor, for equal placements of operands and of results.

    tegula rules --compare [softmax norms ...] [--output FILE] [--gathers FILE]

Every case of communication_cases.py is run by both sides (communication_sides.py), each in processes of its own that
`tegula run` starts: first by PyTorch, then by Tegula, which also brings its results where PyTorch left them, then
once more by PyTorch, which brings its results where Tegula left them. The table is written as Markdown. Exit code 1:
Tegula was wrong or failed in a case.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import communication_cases
import communication_report

MESHES = {1: "2", 2: "2x2"}  # by axes


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Side:
    """Runs cases by one side."""

    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder

    def run(self, work):
        """{case: outcome} of {case: where its results are brought}."""
        outcomes = {}
        for axes, mesh in MESHES.items():
            part = {case.key: work[case.key] for case in communication_cases.CASES
                    if case.axes == axes and case.key in work}
            while part:
                done = self.run_job(axes, mesh, part)
                if not done:
                    sys.exit(f"the ranks of {self.name} do not start")
                outcomes.update(done)
                part = {key: wanted for key, wanted in part.items() if key not in done}
        return outcomes

    def run_job(self, axes, mesh, work):
        print(f"{self.name} on {mesh} ranks: {len(work)} cases", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            paths = {name: os.path.join(folder, name) for name in ("work", "results", "store", "errors")}
            with open(paths["work"], "w", encoding="utf-8") as file:
                json.dump(work, file)
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "communication_ranks.py")
            command = [self.options.tegula, "run", "-n", str(2 ** axes), sys.executable, script, "--side", self.name,
                       "--mesh", mesh, "--work", paths["work"], "--results", paths["results"]]
            environment = {**os.environ, "PEER_STORE": paths["store"], "OMP_NUM_THREADS": "1", "TEGULA_LOG": "error"}
            with open(paths["errors"], "w", encoding="utf-8") as errors:
                subprocess.run(command, env=environment, stdout=errors, stderr=errors, check=False)
            done = {line.pop("case"): line for line in lines_of(paths["results"])}
            if not done:
                with open(paths["errors"], encoding="utf-8") as errors:
                    print(errors.read()[-2000:], file=sys.stderr)
            return done


def compare(cases, options, folder):
    """[(case, here, there)], with what it costs to bring the results where the other side left them."""
    here, there = Side("tegula", options, folder), Side("pytorch", options, folder)
    theirs = there.run({case.key: None for case in cases})
    ours = here.run({case.key: theirs[case.key].get("placements") for case in cases})
    differing = {key: ours[key]["placements"] for key, one in theirs.items() if one["outcome"] == "right"
                 and ours[key]["outcome"] == "right" and ours[key]["placements"] != one["placements"]}
    for key, one in there.run(differing).items():
        if one["outcome"] == "right":
            theirs[key]["afterwards"] = one["afterwards"]
    return [(case, ours[case.key], theirs[case.key]) for case in cases]


def commit_of_sources():
    """Its short name, and a word if the library is not as it was committed; "" outside of a repository."""
    root = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")

    def git(*words):
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD")
    return f"{commit} with changes" if commit and git("status", "--porcelain", "--", "tegula", "python") else commit


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tegula rules --compare")
    parser.add_argument("names", nargs="*", help="families or calls; all if none is named")
    parser.add_argument("--output", help="the file to write; otherwise it is printed")
    parser.add_argument("--gathers", help="what tegula rules --coverage --json wrote: lists operators that gather")
    parser.add_argument("--tegula", default="tegula", help="the command line that starts ranks")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    unknown = [name for name in options.names if not communication_cases.cases_named([name])]
    if unknown:
        print(f'tegula: no call and no family of calls is named "{unknown[0]}"\n'
              f"  hint    families: {', '.join(communication_cases.families())}", file=sys.stderr)
        return 2
    cases = communication_cases.cases_named(options.names)
    before = commit_of_sources()
    with tempfile.TemporaryDirectory(prefix="tegula-communication-") as folder:
        rows = [communication_report.Row(*row) for row in compare(cases, options, folder)]
    after = commit_of_sources()
    commit = before if before == after else f"{before} (when it ended, {after})"
    text = communication_report.text_of(rows, commit, options.gathers)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")
    failed = [row for row in rows if row.here["outcome"] != "right"]
    for row in failed:
        print(f"tegula {row.here['outcome']}: {row.case.key}: {row.here.get('message', '')}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
