"""A command's section of the report: its figure, its section.md, and this as an HTML page."""

from . import figures, page


def draw(folder, name, text):
    """Draws NAME.svg; returns the line of Markdown that shows it, or says that gnuplot is missing."""
    if not figures.has_gnuplot():
        return f"(There is no gnuplot here, so this figure was not drawn: {name}.)"
    figures.prepare(folder)
    figures.draw(folder, name, text)
    return f"![{figures.title_of(name)}]({name}.svg)"


def settings(results, **values):
    """Writes plots/settings.gp: the figures' parameters."""
    lines = [f'{name} = "{value}"\n' if isinstance(value, str) else f"{name} = {value}\n" for name, value in values.items()]
    (results.plots / "settings.gp").write_text("".join(lines), encoding="utf-8")


def numbers(results, *files):
    """The line of links to the files of numbers of a figure or table."""
    return "Numbers: " + ", ".join(f"[{file}]({file})" for file in files if results.has(file)) + "."


def finish(results, name, *parts):
    """Writes section.md, the parts that are not empty and the machine's facts as paragraphs, and section.html."""
    facts = "\n".join(f"- {line}" for line in results.fact("machine").splitlines())
    text = "\n\n".join(part for part in (*parts, facts) if part) + "\n"
    (results.folder / "section.md").write_text(text, encoding="utf-8")
    page.write(results.folder, "section", text.splitlines(), f"{name}, measured")
