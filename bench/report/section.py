"""What a command adds to the report: a figure, and section.md as a page of its own."""

from pathlib import Path

from . import figures, page


def figure(folder, name, text):
    """Draws NAME.svg and prints the line of Markdown that shows it."""
    folder = Path(folder)
    if not figures.has_gnuplot():
        print(f"(There is no gnuplot here, so this figure was not drawn: {name}.)")
        return
    figures.prepare(folder, sorted(path.stem for path in figures.PLOTS.glob(f"{name.split('-')[0]}*.gp")))
    figures.draw(folder, name, text)
    print(f"![{name}]({name}.svg)")


def write(folder, name):
    """section.html of section.md."""
    text = (Path(folder) / "section.md").read_text(encoding="utf-8")
    page.write(Path(folder), "section", text.splitlines(), f"{name}, measured")
