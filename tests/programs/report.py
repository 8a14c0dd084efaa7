"""The page about a run of the gpt says what the run was, needs nothing beside it, and a browser shows it whole.

text: the page is read as it is. browser: Chromium shows it, wide and narrow, light and dark; exit code 77
where there is none.

Usage: report.py <folder of the programs> <a text to learn> <text|browser>
"""
import html
import html.parser
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

RANKS = 4
SMALL = "--steps 5 --layers 2 --width 32 --length 16 --batch 6 --sample 8".split()
VOID = {"meta", "link", "br", "img", "wbr"}
TITLES = ["Loss", "Who holds what", "Communication", "Memory", "What it writes now"]


class Elements(html.parser.HTMLParser):
    """The page's elements in their order; `open` is empty at the end if all were closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.wrong = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.found.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop()["tag"] != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, kind=None):
        return [one for one in self.found if one["tag"] == tag and kind in (None, one.get("class"))]


def run_example(folder, text, report):
    command = [folder / "tegula", "run", "-n", str(RANKS), folder / "gpt", text, *SMALL, "--report", report]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode != 0:
        sys.exit(f"the example failed: {done.stdout}{done.stderr}")
    return done.stdout


def tables(page):
    """Rows as lists of cells, table by table."""
    result = []
    for element in page.found:
        if element["tag"] == "table":
            result.append([])
        elif element["tag"] == "tr":
            result[-1].append([])
        elif element["tag"] in ("td", "th"):
            result[-1][-1].append(element["text"])
    return result


def wrong_in_text(text, printed):
    page = Elements(text)
    if page.wrong or page.open:
        yield f"elements are not closed: {page.wrong} {[one['tag'] for one in page.open]}"
    for word in ("http", "url(", "@import", "<script", "<link", "<img", "src=", "nan", "inf\""):
        if word in text:
            yield f"the page has {word}"
    if [one["text"] for one in page.all("h2")] != TITLES:
        yield f"other sections: {page.all('h2')}"
    losses = re.findall(r"^\[0\] +\d+ +(\d+\.\d{6}) +\d", printed, re.MULTILINE)
    shown = [one["text"] for one in page.all("title")]
    for step, loss in enumerate(losses, 1):
        readings = [re.match(rf"step {step}\n{RANKS} ranks ([\d.]+)", one) for one in shown]
        if not any(one and abs(float(one[1]) - float(loss)) <= 0.006 for one in readings):
            yield f"the chart does not show step {step}: {loss}"
    if len(losses) != 5:
        yield f"the example printed other losses: {printed}"
    difference = re.search(r"differ by at most (\S+)", printed)[1]
    if difference not in page.all("p")[1]["text"]:
        yield f"the page does not say the difference {difference}"
    communication, memory = tables(page)
    if {row[0] for row in communication[1:]} != {"dp", "tp"}:
        yield f"communication over other axes: {communication}"
    if len(memory) != 1 + RANKS or any(row[i] != row[i + 1] for row in memory[1:] for i in (1, 3, 5)):
        yield f"ranks do not hold what was expected: {memory}"
    yield from wrong_pictures(page)


def wrong_pictures(page):
    """A matrix that is cut in two over tp: each rank's half is filled."""
    pictures = {one["aria-label"]: number for number, one in enumerate(page.found) if one["tag"] == "svg"}
    for name, side in (("blocks.*.up.weight", "height"), ("blocks.*.down.weight", "width")):
        if name not in pictures:
            yield f"there is no picture of {name}"
            continue
        parts = list(itertools.takewhile(lambda one: one["tag"] == "rect", page.found[pictures[name] + 1:]))
        filled = [float(one[side]) for one in parts if one["class"].startswith("fill")]
        whole = [float(one[side]) for one in parts if one["class"] == "outline"]
        if len(whole) != RANKS or any(abs(2 * part - all_) > 0.02 for part, all_ in zip(filled, whole, strict=True)):
            yield f"{name} is drawn otherwise than it is cut: {parts}"


# Looks at the page in frames of several widths, and leaves what is wrong in the document.
LOOK = """
function contrast(a, b) {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
  return (high + .05) / (low + .05);
}
function behind(element) {
  for (; element; element = element.parentElement) {
    const color = element.ownerDocument.defaultView.getComputedStyle(element).backgroundColor;
    if (!/, 0\\)$/.test(color) && color != 'transparent') return color;
  }
}
function overlap(a, b) {
  return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
}
function look(frame) {
  const wrong = [], view = frame.contentWindow, page = view.document, root = page.scrollingElement;
  const dark = frame.style.colorScheme == 'dark';
  if (view.matchMedia('(prefers-color-scheme: dark)').matches != dark) wrong.push('the frame is not ' + (dark ? 'dark' : 'light'));
  if (root.scrollWidth > root.clientWidth) wrong.push('the page is wider than its window: ' + root.scrollWidth);
  if (view.performance.getEntriesByType('resource').length) wrong.push('the page fetches something');
  for (const one of page.querySelectorAll('h1, h2, h3, p, td, th, pre, .figures b, .figures span, .card b, .card span, .keys span, .bars span'))
    if (one.textContent && contrast(view.getComputedStyle(one).color, behind(one)) < 4.5) wrong.push('faint: ' + one.textContent);
  for (const svg of page.querySelectorAll('svg')) {
    const box = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
    if (box.width < 8 || box.height < 8) wrong.push('too small: ' + svg.getAttribute('aria-label'));
    for (const text of texts) {
      const own = text.getBoundingClientRect();
      if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1)
        wrong.push('outside of its picture: ' + text.textContent);
      if (contrast(view.getComputedStyle(text).fill, behind(svg)) < 3) wrong.push('faint: ' + text.textContent);
      for (const other of texts)
        if (other != text && overlap(own, other.getBoundingClientRect())) wrong.push(text.textContent + ' covers ' + other.textContent);
    }
    for (const shape of svg.querySelectorAll('polyline, path, rect')) {
      const own = shape.getBoundingClientRect();
      if (own.left < box.left - 2 || own.right > box.right + 2 || own.top < box.top - 2 || own.bottom > box.bottom + 2)
        wrong.push('a shape is outside of ' + svg.getAttribute('aria-label'));
    }
  }
  return {frame: frame.style.width + ' ' + frame.style.colorScheme, pictures: page.querySelectorAll('svg').length, wrong};
}
onload = () => {
  const result = document.createElement('pre');
  result.id = 'result';
  result.textContent = JSON.stringify([...document.querySelectorAll('iframe')].map(look));
  document.body.append(result);
};
"""
FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --window-size=1400,3000 --dump-dom""".split()


def seen_in_browser(browser, text, folder):
    """What LOOK finds, frame by frame."""
    frames = "".join(
        f'<iframe style="width:{width}px;height:2000px;color-scheme:{scheme}" srcdoc="{html.escape(text)}"></iframe>\n'
        for width in (1280, 390) for scheme in ("light", "dark"))
    outer = folder / "frames.html"
    outer.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}<script>{LOOK}</script>", encoding="utf-8")
    command = [browser, *FLAGS, f"--user-data-dir={folder / 'browser'}", outer.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    if not found:
        sys.exit(f"the browser showed nothing: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(html.unescape(found[1]))


def main(programs, text, part):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if part == "browser" and not browser:
        print("SKIPPED: there is no Chromium here (Debian's chromium)")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        printed = run_example(pathlib.Path(programs), text, folder / "pages" / "report.html")
        page = (folder / "pages" / "report.html").read_text(encoding="utf-8")
        if part == "text":
            problems = list(wrong_in_text(page, printed))
        else:
            frames = seen_in_browser(browser, page, folder)
            problems = [f"{one['frame']}: {what}" for one in frames for what in one["wrong"]]
            problems += [f"{one['frame']}: no pictures" for one in frames if one["pictures"] < 10]
            print(f"looked at {sum(one['pictures'] for one in frames)} pictures in {len(frames)} frames")
    print("\n".join(problems) or "the page is right")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
