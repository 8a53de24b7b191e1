#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the menu of the site from docs/index.md: prints a layout file of Doxygen.

usage: menu.py

A heading with a list of links becomes a submenu with these pages. The pages of Doxygen's reference follow.
"""

import re
import sys
from xml.sax.saxutils import quoteattr

sys.dont_write_bytecode = True
from filter import MAIN_PAGE, label  # noqa: E402
from markdown import HEADING, LINK  # noqa: E402

groups = []
for line in MAIN_PAGE.read_text().splitlines():
    heading = HEADING.match(line)
    link = LINK.search(line) if line.startswith("- ") else None
    if heading and heading[1] == "##":
        groups.append((heading[2], []))
    elif link:
        groups[-1][1].append((re.sub("`", "", link[2]), label((MAIN_PAGE.parent / link[3]).resolve())))

print('<doxygenlayout version="1.0"><navindex>')
print('<tab type="mainpage" visible="yes" title="rdmabuf"/>')
for title, pages in groups:
    print(f'<tab type="usergroup" visible="yes" title={quoteattr(title)} url="[none]">')
    for text, page in pages:
        print(f'<tab type="user" visible="yes" title={quoteattr(text)} url="@ref {page}"/>')
    print("</tab>")
print('<tab type="usergroup" visible="yes" title="Reference" url="[none]">')
for kind in "namespacelist", "classlist", "classmembers", "filelist":
    print(f'<tab type="{kind}" visible="yes" title=""/>')
print("</tab></navindex></doxygenlayout>")
