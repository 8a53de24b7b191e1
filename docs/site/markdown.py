# SPDX-License-Identifier: BSD-3-Clause
"""Reads Markdown files: code blocks, headings with the anchors that GitHub gives them, and links."""

import re
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^(\s*)```(\S*)\s*$")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
LIST_ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
CODE_SPAN = re.compile(r"(`+)(.*?)(?<!`)\1(?!`)", re.DOTALL)


@dataclass
class Block:
    """A fenced code block. `line` is the line number of its first line of code."""

    page: Path
    line: int
    language: str
    text: str = ""
    comments: list = field(default_factory=list)  # the HTML comments directly before the block

    def __str__(self):
        return f"{self.page}:{self.line}"

    def declarations(self):
        """The text of <!-- declarations: ... -->, or "" """
        found = [c[13:].strip() for c in self.comments if c.startswith("declarations:")]
        return "\n".join(found)

    def file(self):
        """The file name of <!-- file: ... -->, or "" """
        return next((c[5:].strip() for c in self.comments if c.startswith("file:")), "")

    def run(self):
        """Whether the block has a comment <!-- run -->."""
        return "run" in self.comments


@dataclass
class Link:
    line: int
    target: str


@dataclass
class Page:
    path: Path
    blocks: list = field(default_factory=list)
    anchors: list = field(default_factory=list)
    links: list = field(default_factory=list)
    indented_code: list = field(default_factory=list)  # line numbers of code blocks without a fence


def anchor(heading, taken):
    """The anchor that GitHub gives to a heading, unique in `taken`."""
    text = LINK.sub(r"\2", heading).replace("`", "")
    slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    number = sum(1 for other in taken if re.fullmatch(re.escape(slug) + r"(-\d+)?", other))
    return f"{slug}-{number}" if slug in taken else slug


def chunks(text):
    """Yields (kind, number of the first line, lines) of "code" with its fences, "comment", "heading", "blank" and
    "text". Text is a paragraph or a list."""
    kind, first, lines, done = None, 0, [], True
    for number, line in enumerate(text.splitlines(), 1):
        if not done:
            lines.append(line)
            done = line.strip() == "```" if kind == "code" else "-->" in line
            continue
        found = (
            "code" if FENCE.match(line)
            else "comment" if line.lstrip().startswith("<!--")
            else "heading" if HEADING.match(line)
            else "text" if line.strip()
            else "blank"
        )
        if found == kind == "text":
            lines.append(line)
            continue
        if kind:
            yield kind, first, lines
        kind, first, lines = found, number, [line]
        done = kind != "code" and (kind != "comment" or "-->" in line)
    if not done:
        raise SystemExit(f"line {first}: the {kind} has no end")
    if kind:
        yield kind, first, lines


def parse(path):
    page = Page(Path(path))
    comments = []
    list_indent = 0
    after_blank = in_indented_code = False
    for kind, first, lines in chunks(page.path.read_text()):
        if kind == "blank":
            after_blank = True
            continue
        if kind == "comment":
            comments.append("\n".join(lines).strip()[4:].partition("-->")[0].strip())
            continue
        if kind == "code":
            indent, language = FENCE.match(lines[0]).groups()
            code = "".join(re.sub(f"^ {{0,{len(indent)}}}", "", line) + "\n" for line in lines[1:-1])
            page.blocks.append(Block(page.path, first + 1, language, code, comments))
        elif kind == "heading":
            page.anchors.append(anchor(HEADING.match(lines[0])[2], page.anchors))
        text = "\n".join(lines) if kind != "code" else ""
        # The code keeps its length, so that the position of a link gives its line.
        text = CODE_SPAN.sub(lambda span: re.sub(r"[^\n]", "_", span[0]), text)
        page.links += [Link(first + text.count("\n", 0, link.start()), link[3]) for link in LINK.finditer(text)]
        for number, line in enumerate(lines if kind == "text" else [], first):
            item = LIST_ITEM.match(line)
            spaces = len(line) - len(line.lstrip())
            if spaces >= list_indent + 4 and (in_indented_code or after_blank):
                page.indented_code += [] if in_indented_code else [number]
                in_indented_code = True
                continue
            in_indented_code = after_blank = False
            list_indent = len(item[0]) if item else 0 if spaces == 0 else list_indent
        comments = []
        after_blank = False
    return page
