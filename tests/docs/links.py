#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all relative links and anchors of the Markdown files resolve, that no section is empty, and that
docs/index.md links each page.

usage: links.py SOURCE_DIR [PAGES]

PAGES is the directory of the installed pages, if these are to be checked instead of those of the source tree.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

source = Path(sys.argv[1]).resolve()
root = Path(sys.argv[-1]).resolve()
sys.path.insert(0, str(source / "docs" / "site"))
sys.dont_write_bytecode = True
from markdown import HEADING, chunks, parse  # noqa: E402


def listed():
    """Returns the Markdown files: in a checkout, those that git does not ignore; elsewhere all, but not in build/."""
    if root != source:
        return root.rglob("*.md")
    if not shutil.which("git") or subprocess.run(["git", "-C", str(root), "rev-parse"], capture_output=True).returncode:
        return (path for path in root.rglob("*.md") if path.relative_to(root).parts[0] != "build")
    names = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", "*.md"],
        check=True, capture_output=True, text=True).stdout
    return (root / name for name in names.splitlines())


pages = {path: parse(path) for path in listed() if path.exists()}
errors = []
count = 0
for path, page in pages.items():
    for link in page.links:
        if re.match(r"[a-z]+:", link.target):
            continue
        count += 1
        where = f"{path.relative_to(root)}:{link.line}: link to '{link.target}':"
        target, _, fragment = link.target.partition("#")
        destination = (path.parent / target).resolve() if target else path
        if not destination.is_relative_to(root):
            errors.append(f"{where} the file is not below {root}")
        elif not destination.exists():
            errors.append(f"{where} the file does not exist")
        elif fragment and fragment not in (pages[destination].anchors if destination in pages else []):
            errors.append(f"{where} the heading does not exist")
    # The content of a section is text, code or a heading of a lower level.
    content = [chunk for chunk in chunks(path.read_text()) if chunk[0] not in ("blank", "comment")]
    for (kind, line, lines), following in zip(content, [*content[1:], None]):
        level = len(HEADING.match(lines[0])[1]) if kind == "heading" else 0
        if level and (not following or following[0] == "heading" and len(HEADING.match(following[2][0])[1]) <= level):
            errors.append(f"{path.relative_to(root)}:{line}: the section is empty")

index = root / "docs" / "index.md"
in_menu = {(index.parent / link.target.partition("#")[0]).resolve() for link in pages[index].links}
for path in sorted((root / "docs").rglob("*.md")):
    if path != index and path not in in_menu:
        errors.append(f"docs/index.md has no link to {path.relative_to(root / 'docs')}, which would be missing in the menu of the site")

print("\n".join(errors + [f"{count} links in {len(pages)} pages, {len(errors)} errors"]))
sys.exit(1 if errors or count == 0 else 0)
