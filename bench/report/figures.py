"""Figures: the data that gnuplot reads, gnuplot itself, and what it leaves out of an SVG."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import look
from .results import ReportError

PLOTS = Path(__file__).resolve().parent.parent / "plots"


def has_gnuplot():
    return shutil.which("gnuplot") is not None


def escape(words):
    return words.replace("&", "&amp;").replace("<", "&lt;")


def finish(svg, title, text):
    """Returns gnuplot's SVG with a title and a description for screen readers, colours for a dark page, and reactions to the mouse: a
    value shows its text as a tooltip, and a click on a series fades it or restores it. Coordinates are unchanged."""
    lines = []
    for line in svg.splitlines():
        if re.fullmatch(r"<svg *", line):
            line = '<svg role="img"'
        elif line.startswith("<title>"):
            line = f"<title>{escape(title)}</title>"
        elif line.startswith("<desc>"):
            line = f"<desc>{escape(text)}</desc>\n{look.dark_figure()}".rstrip()
        elif re.search(r'<g id="gnuplot_plot_[0-9]+[a-z]*" *><title>', line):  # a series, whose title would be a command
            line = re.sub(r" *><title>.*</title>", " onclick=\"if (!event.target.closest('.value')) "
                          "style.opacity = style.opacity ? '' : 0.1\">", line)
        elif 'onmousemove="gnuplot_svg.showHypertext' in line:  # a value, for a script of gnuplot's own
            words = re.search(r"showHypertext\(evt,'(.*?)'\)\"", line)
            line = f'<g class="value"><title>{escape(words[1] if words else "")}</title>'
        lines.append(line)
    return "\n".join(lines) + "\n"


def title_of(name):
    """A figure's title, as its program has it."""
    found = re.search(r'^(?:set (?:multiplot )?title|figure_title =) "([^"\\]*)', (PLOTS / f"{name}.gp").read_text(), re.MULTILINE)
    return found[1] if found else name


def prepare(folder):
    """Copies the figures' programs, and writes the palette that they load."""
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for path in PLOTS.glob("*.gp"):
        shutil.copy(path, plots)
    (plots / "palette.gp").write_text(look.gnuplot(), encoding="utf-8")


def draw(folder, name, text):
    """Draws folder/NAME.svg by folder/plots/NAME.gp, and NAME.png where gnuplot can. text: the figure's description for screen readers.
    Any warning of gnuplot, such as a missing column, is an error. gnuplot runs inside the folder, because it would interpret some
    characters of a path."""
    program = f"plots/{name}.gp"
    run = subprocess.run(["gnuplot", program], cwd=folder, capture_output=True, text=True, check=False)
    if run.stdout or run.stderr or run.returncode:
        sys.stderr.write(run.stdout + run.stderr)
        raise ReportError(f"the figure {name}.svg was not drawn as it should be")
    if subprocess.run(["gnuplot", "-e", "as_png=1", program], cwd=folder, capture_output=True, check=False).returncode:
        (folder / f"{name}.png").unlink(missing_ok=True)
    svg = folder / f"{name}.svg"
    drawn = svg.read_text(encoding="utf-8")
    for label in re.findall(r'set [xy]label "([^"]+)"', (folder / program).read_text()):
        if escape(label) not in drawn:  # gnuplot leaves out a label that has no room
            raise ReportError(f"the figure {name}.svg lacks the label of an axis: {label}")
    svg.write_text(finish(drawn, title_of(name), text), encoding="utf-8")


def shown(results, name, caption, numbers):
    """The figure as lines of Markdown: the picture, its sentence, and links to its numbers; without a picture the sentence."""
    lines = []
    if results.has(f"{name}.svg"):
        lines += [f"![{title_of(name)}]({name}.svg)", ""]
    links = ", ".join(f"[{Path(file).name}]({file})" for file in numbers if results.has(file))
    said = f"*{caption}*" if caption else ""
    return "\n".join(lines + [f"{said} Numbers: {links}." if links else said]).strip()
