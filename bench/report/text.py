"""Words and tables: lists of rows as Markdown and as columns for a terminal."""

import re
import textwrap

QUICK = "A quick run: its times mean nothing."
NOTHING = "Too many of these runs were **disturbed** by other work: no conclusion about their times."
NUMBER = re.compile(r"[-+]?[0-9]|-$|disturbed$")


def signed(value, digits=2):
    value = round(value, digits)
    return f"{value:+.{digits}f}" if value else f"{0:.{digits}f}"


def plural(count, noun):
    return f"{count} {noun}" + ("" if count == 1 else "s")


def are(count):
    return "is" if count == 1 else "are"


def saved(share):
    """"12 %" of a step; where it is longer, "-3 % (it takes longer)"."""
    percent = round(100 * share)
    return f"{percent} %" + (" (it takes longer)" if percent < 0 else "")


def listed(words):
    """"A", "A and B", "A, B and C"."""
    words = list(words)
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def joined(sentences):
    """The parts of a caption as one sentence; "" of none."""
    sentences = list(sentences)
    return "; ".join(sentences) + "." if sentences else ""


def short_number(value):
    """1.1 M, 6.1 k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f}"


def markdown_table(rows):
    """Rows as a Markdown table; the first row is the head. A column is aligned right if every field begins with a number."""
    rows = [[str(cell) for cell in row] for row in rows]
    words = [any(not NUMBER.match(row[i]) for row in rows[1:] if row[i]) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "".join("---|" if word else "---:|" for word in words))
    return "\n".join(lines)


def terminal_table(rows):
    rows = [[str(cell) for cell in row] for row in rows]
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(wide[i]) if i < 2 else cell.rjust(wide[i]) for i, cell in enumerate(row)).rstrip()
                     for row in rows)


def columns(rows, *places):
    return [[row[place - 1] for place in places] for row in rows]


def folded(line):
    return textwrap.fill(line, 79, break_long_words=False, break_on_hyphens=False)


def slug(heading):
    """A heading's anchor, by GitHub's rule."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
