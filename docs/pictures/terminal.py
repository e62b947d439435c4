"""Draws what a command prints as a picture of a terminal: text with ANSI styles in, SVG out.

    CLICOLOR_FORCE=1 devices | python3 docs/pictures/terminal.py 'devices' > docs/pictures/devices.svg
"""

import html
import re
import sys

COLUMNS = 152
WIDTH, HEIGHT, MARGIN = 7.25, 18, 16
STYLES = {"1": "font-weight:bold", "31": "fill:#f4796b", "32": "fill:#8fce6b", "33": "fill:#e5c07b"}


def spans(line):
    """The parts of a line, each with its style."""
    style, room, parts = [], COLUMNS, []
    for text, code in re.findall(r"([^\x1b]*)(?:\x1b\[([0-9;]*)m)?", line):
        if len(text) > room:
            text = text[: room - 1] + "…"
        room -= len(text)
        if text:
            parts.append((";".join(STYLES[code] for code in style if code in STYLES), text))
        if room <= 0:
            break
        style = [] if code in ("", "0") else style + code.split(";")
    return parts


def draw(prompt, lines):
    width, height = COLUMNS * WIDTH + 2 * MARGIN, (len(lines) + 1) * HEIGHT + 2 * MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">'
    yield '<rect width="100%" height="100%" rx="8" fill="#23272e"/>'
    yield '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12" fill="#d7dae0">'
    shown = [[(STYLES["32"], "$ "), (STYLES["1"], prompt)]] + [spans(line) for line in lines]
    for number, parts in enumerate(shown):
        y = MARGIN + (number + 1) * HEIGHT - 5
        # Where each word begins is written down, so that a font of another width keeps the columns.
        column, text = 0, []
        for style, part in parts:
            for word in re.finditer(r"\S+(?: \S+)*", part):
                begin = MARGIN + (column + word.start()) * WIDTH
                length = f'textLength="{len(word[0]) * WIDTH:.2f}" lengthAdjust="spacingAndGlyphs"'
                text.append(f'<tspan x="{begin:.2f}" style="{style}" {length}>{html.escape(word[0])}</tspan>')
            column += len(part)
        yield f'<text y="{y}" xml:space="preserve">{"".join(text)}</text>'
    yield "</g></svg>"


if __name__ == "__main__":
    print("\n".join(draw(sys.argv[1], sys.stdin.read().rstrip("\n").split("\n"))))
