"""What a command adds to the report: a figure, and section.md as a page of its own."""

from . import figures, page


def draw(folder, name, text):
    """Draws NAME.svg; gives the line of Markdown that shows it."""
    if not figures.has_gnuplot():
        return f"(There is no gnuplot here, so this figure was not drawn: {name}.)"
    figures.prepare(folder)
    figures.draw(folder, name, text)
    return f"![{figures.title_of(name)}]({name}.svg)"


def settings(results, **values):
    """plots/settings.gp: what a figure must know beside its data."""
    lines = [f'{name} = "{value}"\n' if isinstance(value, str) else f"{name} = {value}\n" for name, value in values.items()]
    (results.plots / "settings.gp").write_text("".join(lines), encoding="utf-8")


def numbers(results, *files):
    """Links to the numbers of a figure or table."""
    return "Numbers: " + ", ".join(f"[{file}]({file})" for file in files if results.has(file)) + "."


def finish(results, name, *parts):
    """section.md of its parts, a blank line between two, and of the machine's facts; section.html. An empty part is left out."""
    facts = "\n".join(f"- {line}" for line in results.fact("machine").splitlines())
    text = "\n\n".join(part for part in (*parts, facts) if part) + "\n"
    (results.folder / "section.md").write_text(text, encoding="utf-8")
    page.write(results.folder, "section", text.splitlines(), f"{name}, measured")
