"""A preprocessor of mdBook: chapters outside of this folder, links to sources, diagrams.

SUMMARY.md lists pages of the whole repository, as `../crates/devices/README.md`. In the book each lies at its
path in the repository, without the `../`. A link to a page or to its folder leads to the chapter. Any other
link out of this folder leads to the file in the checkout that the book was built from, or below the address in
`BOOK_SOURCES`. A link to a file that is not there ends the build.

Blocks of code in `mermaid` become elements that `diagrams.js` draws with Mermaid. npm gets it, once for each
version. Where there is no npm, the diagrams stay text.
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

DOCS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(DOCS)

# Mermaid with the common kinds of diagrams. Its copy is not committed.
MERMAID, VERSION = "@mermaid-js/tiny", "11.17.2"
MERMAID_FILE = os.path.join(DOCS, "mermaid.js")

# Blocks of code; [`name`] without a target; spans of code; `](target)`, and `[name]: target` at a line's start.
PARTS = re.compile(
    r"^(?P<fence> *```+)(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=fence)$"
    r"|(?P<item>\[(?P<name>`[^`\n]+`)\])(?![\[(:])"
    r"|(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<before>\]\(|^\[[^\]]+\]: )(?P<link>[^)\s#]+)",
    re.MULTILINE | re.DOTALL,
)


def chapters(items):
    """All chapters with a page, and those below them."""
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            if chapter["source_path"]:
                yield chapter
            yield from chapters(chapter["sub_items"])


def file_of(chapter):
    """The file that a chapter's text comes from."""
    return os.path.normpath(os.path.join(DOCS, chapter["source_path"]))


def place(chapter):
    """Where a chapter lies in the book. mdBook calls the page of a folder `index`."""
    path = re.sub(r"^(\.\./)+", "", chapter["source_path"].replace(os.sep, "/"))
    return re.sub(r"\bREADME\.md$", "index.md", path)


def rewrite(link, chapter, places):
    """The target of a link, as the page of the book has it."""
    if re.match(r"[a-z]+:", link):
        return link
    file = os.path.normpath(os.path.join(os.path.dirname(file_of(chapter)), link))
    if not os.path.exists(file):
        sys.exit(f"{chapter['source_path']}: {link} is not there")
    target = places.get(file) or places.get(os.path.join(file, "README.md"))
    if not target and file.startswith(DOCS + os.sep) and os.path.isfile(file) and not file.endswith(".md"):
        target = os.path.relpath(file, DOCS)
    if target:
        return os.path.relpath(target, os.path.dirname(chapter["path"])).replace(os.sep, "/")
    # With a scheme, as mdBook makes `.html` of any other `.md`.
    base = os.environ.get("BOOK_SOURCES") or pathlib.Path(ROOT).as_uri()
    return base.rstrip("/") + "/" + os.path.relpath(file, ROOT).replace(os.sep, "/")


def convert(chapter, places, can_draw):
    """Makes the text of a chapter that of its page in the book."""

    def part(match):
        if match["link"]:
            return match["before"] + rewrite(match["link"], chapter, places)
        if match["language"] == "mermaid" and can_draw:
            return f'<pre class="mermaid">\n{html.escape(match["code"])}</pre>'
        if match["item"] and f"\n{match['item']}: " not in chapter["content"]:
            # rustdoc makes it a link to an item.
            return match["name"]
        return match[0]

    text = PARTS.sub(part, chapter["content"])
    # rustdoc writes the title of a crate's page.
    chapter["content"] = text if text.startswith("# ") else f"# {chapter['name']}\n\n{text}"


def get_mermaid():
    """Whether Mermaid is there, or npm gets it. mdBook copies it into the book."""
    if os.path.exists(MERMAID_FILE):
        with open(MERMAID_FILE, encoding="utf-8") as file:
            if f'"{VERSION}"' in file.read():
                return True
    npm = shutil.which("npm")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, f"{MERMAID}@{VERSION}"]
        if not npm or subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            print("docs/sources.py: npm did not get Mermaid: the diagrams stay text", file=sys.stderr)
            return False
        (archive,) = os.listdir(folder)
        with tarfile.open(os.path.join(folder, archive)) as package:
            script = package.extractfile("package/dist/mermaid.tiny.js").read()
    with open(MERMAID_FILE, "wb") as file:
        file.write(script)
    return True


def main():
    _, book = json.load(sys.stdin)
    items = book.get("sections", book.get("items", []))
    for chapter in chapters(items):
        chapter["path"] = place(chapter)
    places = {file_of(chapter): chapter["path"] for chapter in chapters(items)}
    can_draw = get_mermaid()
    for chapter in chapters(items):
        convert(chapter, places, can_draw)
    json.dump(book, sys.stdout)


if sys.argv[1:2] != ["supports"]:
    main()
