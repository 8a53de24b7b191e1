#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Doxygen's filter for Markdown files: prints FILE with labels and links as Doxygen needs them.

usage: filter.py FILE

Every heading gets a label, because Doxygen does not give headings the anchors of GitHub. Links between pages become
references to these labels.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from markdown import CODE_SPAN, HEADING, LINK, anchor, chunks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MAIN_PAGE = ROOT / "docs" / "index.md"


def label(path):
    """docs/registration.md: registration; softverbs/README.md: softverbs; README.md: readme"""
    relative = path.relative_to(ROOT).with_suffix("")
    parts = [part for part in relative.parts if part != "docs"]
    if parts[-1] == "README" and len(parts) > 1:
        parts.pop()
    return "_".join(parts).lower().replace(".", "_")


def replace_link(match, page, restore):
    image, text, target = match[1], match[2], match[3]
    path, _, fragment = target.partition("#")
    if re.match(r"[a-z]+:", target):
        return match[0]
    destination = (page.parent / path).resolve() if path else page
    if image:
        return f"![{text}]({destination.name})"
    if destination.suffix != ".md":
        return text
    plain = restore(text).replace("`", "").replace('"', "'").replace("\n", " ")
    if fragment:
        return f'@ref {label(destination)}-{fragment} "{plain}"'
    if destination == MAIN_PAGE:
        return f'@ref index "{plain}"'
    return f'@ref {label(destination)} "{plain}"'


def convert(text, page):
    """Converts links, bold text and code. Doxygen 1.9 does not find the end of bold text after code, and takes a
    single quote for the end of code."""
    code = []

    def hide(span):
        code.append(f"``{span[2]}``" if "'" in span[2] else span[0])
        return f"\0{len(code) - 1}\0"

    def restore(text):
        return re.sub("\0(\\d+)\0", lambda match: code[int(match[1])], text)

    text = CODE_SPAN.sub(hide, text)
    text = LINK.sub(lambda match: replace_link(match, page, restore), text)
    return restore(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text, flags=re.DOTALL))


def main():
    page = Path(sys.argv[1]).resolve()
    anchors = []
    for kind, _, lines in chunks(page.read_text()):
        if kind == "comment":
            print("\n" * (len(lines) - 1))
        elif kind == "text":
            print(convert("\n".join(lines), page))
        elif kind == "heading":
            title = HEADING.match(lines[0])[2]
            anchors.append(anchor(title, anchors))
            line = convert(lines[0], page)
            if page == MAIN_PAGE:
                # The sections of the main page are submenus of the menu, not sections below the main page.
                print(line if len(anchors) == 1 else f"<h2>{title}</h2>")
            else:
                name = label(page) if len(anchors) == 1 else f"{label(page)}-{anchors[-1]}"
                print(f"{line} {{#{name}}}")
        else:
            print("\n".join(lines))


if __name__ == "__main__":
    main()
