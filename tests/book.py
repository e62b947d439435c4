"""Checks the built book: its links lead to pages and headings, and Mermaid can read its diagrams.

    python3 tests/book.py target/book
"""

import html
import pathlib
import re
import subprocess
import sys
import urllib.parse

BOOK = pathlib.Path(sys.argv[1]).resolve()
# Of a browser, only what Mermaid's parsers touch. A diagram a line of the input, as JSON.
PARSE = """
const element = { nodeType: 9, implementation: {}, createElement: () => ({}) };
globalThis.window = { document: element, Element: class {}, NodeFilter: {}, Node: {}, addEventListener() {} };
require("vm").runInThisContext(require("fs").readFileSync(process.argv[1], "utf8"));
mermaid.parse(require("fs").readFileSync(0, "utf8")).catch(error => { console.error(error.message); process.exit(1); });
"""


def read(page):
    """The part of a page that is no frame around it."""
    return page.read_text(encoding="utf-8").partition("<main>")[2].partition("</main>")[0]


def wrong_links(page, texts):
    for link in re.findall(r'(?:href|src)="([^"]*)"', texts[page]):
        link = urllib.parse.unquote(html.unescape(link))
        path, _, heading = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link} is not there"
        elif heading and f'id="{html.escape(heading)}"' not in texts.get(target, ""):
            yield f"{link} has no such heading"


def wrong_diagrams(text):
    if "language-mermaid" in text:
        yield "a diagram is text"
    for diagram in re.findall(r'<pre class="mermaid">(.*?)</pre>', text, re.DOTALL):
        command = ["node", "-e", PARSE, str(BOOK / "mermaid.js")]
        result = subprocess.run(command, input=html.unescape(diagram), text=True, capture_output=True)
        if result.returncode != 0:
            yield f"a diagram is wrong: {result.stderr}"


# All pages once more in one, a frame, and an address that is not there.
OTHERS = {"print.html", "toc.html", "404.html"}
TEXTS = {page: read(page) for page in BOOK.rglob("*.html") if page.name not in OTHERS}
WRONG = [
    f"{page.relative_to(BOOK)}: {what}"
    for page, text in sorted(TEXTS.items())
    for what in [*wrong_links(page, TEXTS), *wrong_diagrams(text)]
]
assert len(TEXTS) > 100, f"{len(TEXTS)} pages"
sys.exit("\n".join(WRONG) or 0)
