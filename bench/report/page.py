"""Pages: rendering of a Jinja template, a table of contents, and Markdown as an HTML page that needs no other file."""

import re
from pathlib import Path

import jinja2

from . import look
from .markdown import Page
from .text import slug

HERE = Path(__file__).resolve().parent


def render(template, values):
    loader = jinja2.FileSystemLoader(HERE)
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    text = environment.get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def with_contents(lines, folder):
    """The Markdown with a list of its sections before the first of them."""
    found = []
    for line in lines:
        section = re.fullmatch(r"\[section\]\((.*\.md)\)", line)
        if line.startswith("## "):
            found.append((line[3:], "#" + slug(line[3:])))
        elif section and (folder / section[1]).is_file():
            heading = (folder / section[1]).read_text(encoding="utf-8").splitlines()[0]
            found.append((heading.lstrip("# "), section[1]))
    first = next((i for i, line in enumerate(lines) if line.startswith("## ")), len(lines))
    return lines[:first] + [f"- [{text}]({target})" for text, target in found] + [""] * bool(found) + lines[first:]


def write(folder, name, lines, title):
    """NAME.html of lines of Markdown."""
    page = Page(folder).convert(lines)
    first = next((i for i, line in enumerate(page.lines) if line.startswith("<h2")), len(page.lines))
    sections = [(anchor, words) for level, anchor, words in page.headings if level == 2]
    html = render("page.html.j2", {
        "title": title, "css": look.css() + (HERE / "page.css").read_text(encoding="utf-8"),
        "top": "\n".join(page.lines[:first]), "body": "\n".join(page.lines[first:]), "contents": sections if len(sections) > 1 else [],
    })
    (folder / f"{name}.html").write_text(html, encoding="utf-8")
