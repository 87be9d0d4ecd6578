"""The what-if of a profile (bench_profile --save): a table that bench_scale computed, and sliders where scripts run."""

import json
import re
from pathlib import Path

from . import look
from .results import network_name, scaled

MODEL = Path(__file__).resolve().parent.parent / "model"
PAGE = ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<title>What if?</title>\n<style>{}body {{ background: var(--paper) }}</style></head><body>\n"
        "{}\n</body></html>")


def table(name, rows):
    """What bench_scale computes, as HTML."""
    steps = {}
    for row in rows:
        steps.setdefault(row["devices"], []).append(row)
    cells = [[devices, *(f"{row.number('step'):.1f}" for row in of), *(f"{row.number('exposed'):.1f}" for row in of[1:])] for devices, of in steps.items()]
    head = "".join(f"<th>{name}</th>" for name in ("devices", "DP", "DDP", "FSDP", "exposed in DDP", "in FSDP"))
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells]
    return "\n".join([f"<p>{name}: 64 rows a device, 10 Gbit/s, 10 us, buckets of 1 MiB. Milliseconds of a step:</p><table>", f"<tr>{head}</tr>", *lines, "</table>"])


def write(profile, programs, page=""):
    """Prints it."""
    data = Path(profile).read_text(encoding="utf-8").replace("<", "\\u003c")
    rows = scaled(programs, profile, "--devices", "1,2,4,8,64,512,4096", "--bucket-cap-mb", 1, "--rows", 64, "--gbit", 10, "--latency-us", 10)
    given = re.search(r'"name": *"([^"]*)"', data)[1]
    named = re.fullmatch(r"(\w+) ([0-9,]+)", given)  # "mlp 512,512"
    name = network_name(named[1], named[2]) if named else given
    parts = {
        "<!-- TABLE -->": table(name, rows),
        "@MODEL@": (MODEL / "step_model.js").read_text(encoding="utf-8").rstrip("\n"),
        "@PROFILE@": data.replace(f'"{given}"', f'"{name}"'),
        "@COLOURS@": json.dumps(look.phase_colours()),
        "@DARK@": json.dumps(look.ON_DARK),
    }
    text = (MODEL / "whatif.html").read_text(encoding="utf-8").rstrip("\n")
    for mark, part in parts.items():
        text = text.replace(mark, part)
    print(PAGE.format(look.css(), text) if page else text)
