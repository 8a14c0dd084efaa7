"""The README's program is examples/tiles.cpp, to the letter, and its map names folders that exist.

Usage: readme.py <root of the repository>
"""
import pathlib
import re
import sys


def main(root):
    root = pathlib.Path(root)
    readme = (root / "README.md").read_text(encoding="utf-8")
    program = (root / "examples" / "tiles.cpp").read_text(encoding="utf-8")
    problems = []
    if program[program.index("#include"):].strip() not in readme:
        problems.append("README.md does not show examples/tiles.cpp as it is")
    for folder in re.findall(r"^([\w./-]+/) ", readme, re.MULTILINE):
        if not (root / folder).is_dir():
            problems.append(f"README.md names {folder}, which does not exist")
    print("\n".join(problems) or "the README fits the tree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
