"""The reports' Markdown as HTML: headings with anchors, paragraphs, lists, tables, fenced code, details, `code`, **bold**,
*italics*, links, and images that stand alone on a line, which are SVGs and become part of the page.

A line with only [section](FILE) includes another command's section.md.
"""

import base64
import html
import re
from pathlib import Path

from .text import slug

CSV_LIMIT = 300_000  # bytes: a CSV up to this size is embedded in the page


def span(text, folder):
    """A line's code, emphasis and links."""
    parts = re.split(r"(`[^`]*`)", text)
    for i, part in enumerate(parts):
        if part.startswith("`") and part.endswith("`") and len(part) > 1:
            parts[i] = f"<code>{html.escape(part[1:-1], quote=False)}</code>"
            continue
        part = html.escape(part, quote=False).replace(" %", "&nbsp;%")
        part = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", lambda link: anchor(link[1], link[2], folder), part)
        part = re.sub(r"\*\*([^*]*)\*\*", r"<b>\1</b>", part)
        parts[i] = re.sub(r"\*([^* ][^*]*)\*", r"<i>\1</i>", part)
    return "".join(parts)


def anchor(text, target, folder):
    """A link. A CSV of the results up to CSV_LIMIT is embedded, so that the page needs no other file."""
    path = folder / target
    if target.endswith(".csv") and path.is_file() and path.stat().st_size <= CSV_LIMIT:
        data = base64.b64encode(path.read_bytes()).decode()
        return f'<a download="{Path(target).name}" href="data:text/csv;base64,{data}">{text}</a>'
    return f'<a href="{html.escape(target)}">{text}</a>'


def figure(path, prefix):
    """An SVG whose ids have a prefix, because ids of two figures in one page would collide."""
    name = prefix + path.stem
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not re.match(r'<\?xml|<!DOCTYPE| *"http.*dtd">', line):
            line = re.sub(r"( id=['\"])", rf"\1{name}-", line)
            line = re.sub(r"(href=['\"]#)", rf"\1{name}-", line)
            lines.append(line.replace("url(#", f"url(#{name}-"))
    return [f'<figure id="figure-{name}">', *lines, "</figure>"]


class Page:
    """A conversion in progress: the HTML so far, and the element that is open."""

    def __init__(self, folder, prefix=""):
        self.folder, self.prefix = Path(folder), prefix
        self.lines, self.headings, self.rows, self.open, self.ids, self.facts = [], [], [], "", set(), []

    def block(self, kind):
        if self.open == kind:
            return
        if self.open == "table":
            self.table()
        elif self.open:
            self.lines.append(f"</{self.open}>")
        if kind and kind != "table":
            self.lines.append(f"<{kind}>")
        self.open = kind

    def table(self):
        """Converts a table: the first row is the head, the second has the columns' alignment."""
        cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in self.rows]
        right = ["-:" in cell for cell in cells[1]] if len(cells) > 1 else []
        self.lines.append('<div class="wide"><table>')
        for tag, row in [("th", cells[0])] + [("td", row) for row in cells[2:]]:
            classes = [' class="number"' if i < len(right) and right[i] else "" for i in range(len(row))]
            self.lines.append(('<tr class="disturbed">' if tag == "td" and "disturbed" in row else "<tr>") + "".join(
                f"<{tag}{kind}>{span(cell, self.folder)}</{tag}>" for kind, cell in zip(classes, row)) + "</tr>")
        self.lines.append("</table></div>")
        self.rows = []

    def heading(self, line):
        level, text = len(line) - len(line.lstrip("#")), line.lstrip("#").strip()
        self.block("")
        name = self.prefix + slug(text)
        while name in self.ids:
            name += "-"
        self.ids.add(name)
        self.headings.append((level, name, span(text, self.folder)))
        self.lines.append(f'<h{level} id="{name}">{span(text, self.folder)}</h{level}>')

    def section(self, name):
        """Includes another command's section, without the machine facts that this page already has."""
        path = self.folder / name
        known = set(self.facts)
        text = [line for line in path.read_text(encoding="utf-8").splitlines() if line not in known]
        part = Page(path.parent, path.parent.name.rpartition("-")[2] + "-").convert(text)
        self.headings += part.headings
        self.lines += part.lines

    def line(self, line):
        if line.startswith("```"):
            self.block("" if self.open == "pre" else "pre")
        elif self.open == "pre":
            self.lines.append(html.escape(line, quote=False))
        elif re.match(r"#+ ", line):
            self.heading(line)
        elif line.startswith("!["):
            self.block("")
            self.lines += figure(self.folder / re.search(r"\]\(([^)]*)\)", line)[1], self.prefix)
        elif line.startswith("|"):
            self.block("table")
            self.rows.append(line)
        elif re.fullmatch(r"\[section\]\(.*\)", line):
            self.block("")
            self.section(line[10:-1])
        elif re.match(r"</?details", line):
            self.block("")
            self.lines.append(line)
        elif line.startswith("- "):
            self.block("ul")
            self.lines.append("<li>" + span(line[2:], self.folder))
        elif not line:
            self.block("")
        else:
            if self.open != "ul":  # an item may have several lines
                self.block("p")
            self.lines.append(span(line, self.folder))

    def convert(self, lines):
        self.facts = [line for line in lines if line.startswith("- ")]
        for line in lines:
            self.line(line)
        self.block("")
        return self
