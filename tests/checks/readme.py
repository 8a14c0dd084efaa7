"""The README shows the examples to the letter, and its map names folders that exist.

Usage: readme.py <root of the repository>
"""
import pathlib
import re
import sys


def main(root):
    root = pathlib.Path(root)
    readme = (root / "README.md").read_text(encoding="utf-8")
    problems = []
    for path in sorted((root / "examples").glob("*.cpp")):
        program = path.read_text(encoding="utf-8")
        if program[program.index("#include"):].strip() not in readme:
            problems.append(f"README.md does not show {path.name} as it is")
    for folder in re.findall(r"^([\w./-]+/) ", readme, re.MULTILINE):
        if not (root / folder).is_dir():
            problems.append(f"README.md names {folder}, which does not exist")
    print("\n".join(problems) or "the README fits the tree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
