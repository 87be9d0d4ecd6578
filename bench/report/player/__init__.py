"""player.html: one step of DataParallel above one of DistributedDataParallel or of fully sharded training, played from their traces.

The page needs no other file: it contains its data, its script, and the model (bench/model/step_model.js), which computes steps over
other links and of other numbers of devices from the network's profile. Without traces it has computed steps only.
"""

import json
import re
from pathlib import Path

from .. import look, page
from ..results import ReportError, Results
from ..traces import read_events, read_step

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "model" / "step_model.js"
SCRIPTS = ("steps", "units", "draw", "more", "page")


def read_scene(results, name, text, files):
    """{id, name, dp, ddp, fsdp, mine} from the traces; None if DP or DDP has no trace. fsdp and mine only if they have one."""
    scene = {"id": name, "name": text}
    for strategy in (*results.strategies, "fsdp"):
        file = files.format(strategy)
        if not results.has(file) and strategy in ("mine", "fsdp"):
            continue
        if not results.has(file):
            return None
        try:
            scene[strategy] = read_step(read_events(results.folder / file))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"{file} is no trace of a training") from error
    return scene


def fill(data):
    """The page's HTML: its template with the style, the data, and all scripts as one."""
    script = "".join(path.read_text(encoding="utf-8") for path in (MODEL, *(HERE / f"{name}.js" for name in SCRIPTS)))
    return page.render("player/player.html", {
        "parts": ("dp", "ddp", "fsdp", "mine"), "style": look.css() + (HERE / "player.css").read_text(encoding="utf-8"), "script": script,
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")})


def write(folder):
    """Writes player.html of the results in the folder, if they have a profile."""
    results = Results(folder)
    if not results.has("profile.json"):
        return
    link = re.search(r"([0-9.e+-]+) Gbit/s and ([0-9.e+-]+) us", results.link)
    gbit, latency_us = (float(number) for number in (link.groups() if link else (10, 20)))
    scenes = [read_scene(results, *scene) for scene in
              (("memory", "through memory", "trace-{}.json"), ("link", f"over {gbit:g} Gbit/s", "trace-link-{}.json"))]
    profile = json.loads((results.folder / "profile.json").read_text())
    data = {"network": results.fact("traced") or profile.get("name", ""), "profile": profile,
            "colours": look.phase_colours(), "mine": results.mine["file"] if results.mine else "",
            "gbit": gbit, "latency_us": latency_us, "scenes": [scene for scene in scenes if scene]}
    (results.folder / "player.html").write_text(fill(data), encoding="utf-8")
