#!/usr/bin/env python3
"""Makes a picture (SVG) of what a terminal shows: text with ANSI styles on standard input, SVG on standard output.

  tmux capture-pane -p -e | docs/picture.py TITLE > docs/tour.svg

Only the styles that refit prints are known: bold, dim, and the colours red, green, cyan.
"""
import html
import re
import sys

WIDTH, HEIGHT = 8.43, 18  # of a character at 14 px
STYLES = {"1": "b", "2": "d", "31": "r", "32": "g", "36": "c"}


def spans(line, style):
    """Pieces of a line with their styles, and the style in which it ends."""
    pieces = []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            if part:
                pieces.append((part, frozenset(style)))
            continue
        for code in part[2:-1].split(";"):
            if code in ("", "0"):
                style = set()
            elif code == "39":
                style = style - {"r", "g", "c"}
            elif code in STYLES:
                style = style | {STYLES[code]}
    return pieces, style


def main():
    lines = sys.stdin.read().rstrip().splitlines()
    rows, style, width = [], set(), 0
    for i, line in enumerate(lines):
        pieces, style = spans(line.rstrip(), style)
        column, y = 0, 56 + i * HEIGHT
        for text, classes in pieces:
            name = " ".join(sorted(classes))
            # Blocks are drawn, so that no font leaves gaps between them; words stand where they stood, since
            # viewers make one space of many.
            for piece in re.finditer(r"█+|[^█\s]+(?: [^█\s]+)*", text):
                shown, x = piece.group(), 20 + (column + piece.start()) * WIDTH
                length = len(shown) * WIDTH
                if shown[0] == "█":
                    rows.append(f'<rect class="{name} k" x="{x:.1f}" y="{y - 12}" '
                                f'width="{length:.1f}" height="13"/>')
                else:
                    rows.append(f'<text class="{name}" x="{x:.1f}" y="{y}" textLength="{length:.1f}">'
                                f'{html.escape(shown)}</text>')
            column += len(text)
        width = max(width, column)
    w, h = round(width * WIDTH + 40), 56 + len(lines) * HEIGHT + 4
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}">')
    print("<style>text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}"
          ".k{fill:#d6deeb}.b{font-weight:bold}.d{fill:#8193a8}.r{fill:#ff6b6b}.g{fill:#7fdb8a}"
          ".c{fill:#56c8d8}.t{fill:#8193a8}</style>")
    print(f'<rect width="{w}" height="{h}" rx="8" fill="#0f1a26"/>')
    for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        print(f'<circle cx="{22 + i * 18}" cy="20" r="5.5" fill="{colour}"/>')
    print(f'<text class="t" x="{w / 2:.0f}" y="25" text-anchor="middle">{html.escape(sys.argv[1])}</text>')
    print("\n".join(rows))
    print("</svg>")


main()
