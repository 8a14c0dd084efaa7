"""The README names every example, its programs are examples to the letter, and its map names folders that exist.

Usage: readme.py <root of the repository>
"""
import pathlib
import re
import sys


def main(root):
    root = pathlib.Path(root)
    readme = (root / "README.md").read_text(encoding="utf-8")
    problems = []
    examples = {path.name: path.read_text(encoding="utf-8") for path in sorted((root / "examples").glob("*.cpp"))}
    programs = {text[text.index("#include"):].strip() for text in examples.values()}
    for name in examples:
        if f"examples/{name}" not in readme:
            problems.append(f"README.md does not name examples/{name}")
    for block in re.findall(r"^```cpp\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        if "int main(" in block and block.strip() not in programs:
            problems.append(f"README.md shows a program that is no example:\n{block[:300]}...")
    for folder in re.findall(r"^([\w./-]+/) ", readme, re.MULTILINE):
        if not (root / folder).is_dir():
            problems.append(f"README.md names {folder}, which does not exist")
    print("\n".join(problems) or "the README fits the tree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
