#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that all relative links and anchors of the Markdown files resolve, and that docs/index.md links each page.

usage: links.py SOURCE_DIR
"""

import re
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(root / "docs" / "site"))
sys.dont_write_bytecode = True
from markdown import parse  # noqa: E402

listed = subprocess.run(
    ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", "*.md"],
    check=True, capture_output=True, text=True).stdout
pages = {path: parse(path) for path in (root / name for name in listed.splitlines()) if path.exists()}
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
        if not destination.exists():
            errors.append(f"{where} the file does not exist")
        elif fragment and fragment not in (pages[destination].anchors if destination in pages else []):
            errors.append(f"{where} the heading does not exist")

index = root / "docs" / "index.md"
in_menu = {(index.parent / link.target.partition("#")[0]).resolve() for link in pages[index].links}
for path in sorted((root / "docs").rglob("*.md")):
    if path != index and path not in in_menu:
        errors.append(f"docs/index.md has no link to {path.relative_to(root / 'docs')}, which would be missing in the menu of the site")

print("\n".join(errors + [f"{count} links in {len(pages)} pages, {len(errors)} errors"]))
sys.exit(1 if errors or count == 0 else 0)
