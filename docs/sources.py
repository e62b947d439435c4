"""A preprocessor of mdBook: links to sources.

The pages link to files of the repository that are not part of the book, as `../crates/devices/README.md`. In
the book such a link leads to the file in the checkout that the book was built from, or below the address in
`BOOK_SOURCES`. A link to a file that is not there ends the build.
"""

import json
import os
import pathlib
import re
import sys

DOCS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(DOCS)

# `](target)`, and `[name]: target` at the start of a line.
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s#]+)", re.MULTILINE)


def rewrite(link, page):
    """The target of a link, as the page of the book has it."""
    if re.match(r"[a-z]+:", link):
        return link
    file = os.path.normpath(os.path.join(DOCS, os.path.dirname(page), link))
    if not os.path.exists(file):
        sys.exit(f"{page}: {link} is not there")
    if file.startswith(DOCS + os.sep) and (link.endswith(".md") or not os.path.isdir(file)):
        # mdBook calls the page of a folder `index`.
        return re.sub(r"\bREADME\.md$", "index.md", link)
    # With a scheme, as mdBook makes `.html` of any other `.md`.
    base = os.environ.get("BOOK_SOURCES") or pathlib.Path(ROOT).as_uri()
    return base.rstrip("/") + "/" + os.path.relpath(file, ROOT).replace(os.sep, "/")


def visit(items):
    """Rewrites all chapters, and those below them."""
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            if page := chapter["path"]:
                chapter["content"] = LINK.sub(
                    lambda match: match[1] + rewrite(match[2], page), chapter["content"]
                )
            visit(chapter["sub_items"])


if sys.argv[1:2] != ["supports"]:
    _, book = json.load(sys.stdin)
    visit(book.get("sections", book.get("items", [])))
    json.dump(book, sys.stdout)
