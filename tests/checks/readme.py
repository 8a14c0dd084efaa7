"""What README.md and docs/ say about the tree is true.

- README.md names every example, and every page under docs/ is reached from it.
- Programs that are shown are examples to the letter; README.md stays short.
- Links, and paths in backticks, lead to files that exist.
- docs/figures.md has every figure of the README's table.
- docs/porting.md shows every line that differs between the plain and the ported program, and no other.

Usage: readme.py <root of the repository>
"""
import difflib
import pathlib
import re
import sys

MOST_LINES = 130
PATH = re.compile(r"`((?:examples|docs|scripts|tests|tegula|python|bench|tools)/[\w./-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def rows(text):
    """The cells of a page's tables, by the first cell: a case may stand in several tables."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            found.setdefault(cells[0], []).append(cells[1:])
    return found


def wrong_names(root, pages):
    for path, text in pages.items():
        for link in LINK.findall(text):
            if not (path.parent / link).exists():
                yield f"{path.relative_to(root)} links to {link}, which does not exist"
        for name in PATH.findall(text):
            if not (root / name).exists():
                yield f"{path.relative_to(root)} names {name}, which does not exist"


def wrong_programs(root, pages):
    examples = [path.read_text(encoding="utf-8") for path in (root / "examples").rglob("*.cpp")]
    programs = {text[text.index("#include"):].strip() for text in examples if "int main(" in text}
    scripts = [path.read_text(encoding="utf-8") for path in (root / "examples").rglob("*.py")]
    scripts = {text[text.index("import"):].strip() for text in scripts}
    for path, text in pages.items():
        for block in blocks(text, "python"):
            if "tg.init()" in block and block.strip() not in scripts:
                yield f"{path.relative_to(root)} shows a program that is no example:\n{block[:300]}..."
        for block in blocks(text, "cpp"):
            if "int main(" in block and block.strip() not in programs:
                yield f"{path.relative_to(root)} shows a program that is no example:\n{block[:300]}..."


def wrong_readme(root, readme):
    examples = [path for path in (root / "examples").rglob("*.*")
                if path.suffix == ".py" or path.suffix == ".cpp" and "int main(" in path.read_text(encoding="utf-8")]
    for path in sorted(examples):
        if str(path.relative_to(root)) not in readme:
            yield f"README.md does not name {path.relative_to(root)}"
    for path in sorted((root / "docs").glob("*.md")):
        if f"docs/{path.name}" not in readme:
            yield f"README.md does not lead to docs/{path.name}"
    if len(readme.splitlines()) > MOST_LINES:
        yield f"README.md has {len(readme.splitlines())} lines, more than {MOST_LINES}"


def wrong_figures(readme, figures):
    """Cells of the README's table that begin with a digit stand in the row of the same case."""
    measured = rows(figures)
    table = readme[readme.index("## Figures"):]
    for case, values in rows(table[:table.index("\n## ")]).items():
        if case == "case":
            continue
        numbers = {cell.split()[0] for cell in values[0] if cell[:1].isdigit()}
        if not any(numbers <= set(row) for row in measured.get(case, [])):
            yield f"README.md has a figure that docs/figures.md has not: {case} {values[0]}"


def wrong_edits(root, page):
    programs = [(root / "examples" / "porting" / name).read_text(encoding="utf-8").splitlines()
                for name in ("plain.cpp", "ported.cpp")]
    code = [lines[next(i for i, line in enumerate(lines) if not line.startswith("//")):] for lines in programs]
    edits = {line for line in difflib.ndiff(*code) if line[0] in "+-" and line[2:].strip()}
    edits = {line[0] + line[2:] for line in edits}
    shown = [line for block in blocks(page, "diff") for line in block.splitlines() if line.strip("+- ")]
    for line in sorted(edits - set(shown)):
        yield f"docs/porting.md does not show the edit {line}"
    for line in shown:
        if line[0] in "+-" and line not in edits:
            yield f"docs/porting.md shows an edit that is none: {line}"
        if line[0] == " " and not all(line[1:] in lines for lines in programs):
            yield f"docs/porting.md shows a line that is not in both programs: {line}"


def main(root):
    root = pathlib.Path(root)
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    pages = {path: path.read_text(encoding="utf-8") for path in paths}
    readme = pages[root / "README.md"]
    problems = [
        *wrong_readme(root, readme),
        *wrong_names(root, pages),
        *wrong_programs(root, pages),
        *wrong_figures(readme, pages[root / "docs" / "figures.md"]),
        *wrong_edits(root, pages[root / "docs" / "porting.md"]),
    ]
    print("\n".join(problems) or "README.md and docs/ fit the tree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
