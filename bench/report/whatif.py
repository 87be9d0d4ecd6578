"""The what-if of a profile (bench_profile --save): a table that bench_scale computed, and sliders where scripts run."""

import json
import re
import sys
from pathlib import Path

from . import look
from .results import network_name
from .scale import read_scaled

MODEL = Path(__file__).resolve().parent.parent / "model"
PAGE = ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<title>What if?</title>\n<style>@media (prefers-color-scheme: dark) {{ body {{ background: {} }} }}</style></head><body>\n"
        "{}\n</body></html>")


def table(lines):
    """What bench_scale printed, as HTML."""
    title, dp, rows = next(line[2:] for line in lines if line.startswith("#")), "", []
    for row in read_scaled(lines):
        if row["strategy"] == "dp":
            dp = row["step"]
        else:
            cells = [row["devices"], *(f"{float(ms):.1f}" for ms in (dp, row["step"], row["exposed"]))]
            rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    head = "".join(f"<th>{name}</th>" for name in ("devices", "DP", "DDP", "exposed in DDP"))
    return "\n".join([f"<p>{title}. Milliseconds of a step:</p><table>", f"<tr>{head}</tr>", *(f"<tr>{row}</tr>" for row in rows), "</table>"])


def write(profile, page=""):
    """Prints it; bench_scale's output is read from stdin."""
    data = Path(profile).read_text(encoding="utf-8").replace("<", "\\u003c")
    lines = sys.stdin.read().splitlines()
    named = re.search(r'"name": *"((\w+) ([0-9,]+))"', data)  # "mlp 512,512"
    if named:
        name = network_name(named[2], named[3])
        data, lines = data.replace(f'"{named[1]}"', f'"{name}"'), [line.replace(named[1], name) for line in lines]
    parts = {
        "<!-- TABLE -->": table(lines),
        "@MODEL@": (MODEL / "step_model.js").read_text(encoding="utf-8").rstrip("\n"),
        "@PROFILE@": data,
        "@COLOURS@": json.dumps(look.phase_colours()),
        "@DARK@": json.dumps(look.ON_DARK),
    }
    text = (MODEL / "whatif.html").read_text(encoding="utf-8").rstrip("\n")
    for mark, part in parts.items():
        text = text.replace(mark, part)
    print(PAGE.format(look.PAGE["paper"][1], text) if page else text)
