"""player.html: one step of DataParallel above one of DistributedDataParallel or of fully sharded training, played from their traces.

The page has everything inside and loads nothing: its data, the model (bench/model/step_model.js), which computes steps
over other links from the network's profile, and its script. It is made where there are a profile and the traces.
"""

import json
import re
from pathlib import Path

from ..captions import traced_network
from ..look import PHASES, phase_colours
from ..results import ReportError, Results
from ..traces import argument, is_of_another, read_events, shortest_step, spans_of

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "model" / "step_model.js"


def phases_of(span, last_begin):
    """The parts (begin, end, phase) of a span. A collective waits until the last rank has begun it, then moves; a unit's has a phase
    of its name."""
    begin, end = span["ts"], span["ts"] + span["dur"]
    if span["name"] in PHASES:
        return [(begin, end, span["name"])]
    moves = min(last_begin[span["name"], span["args"]["number"]], end)
    named = span["name"] in ("all_gather", "reduce_scatter") and argument(span, "bucket") >= 0
    return [(begin, moves, "waiting"), (moves, end, span["name"] if named else "moving")]


def label_of(name, pid, names):
    """(kind, device, label) of a track: "drives" is DP's main thread, "device" computes, "link" communicates."""
    device = re.fullmatch(r"(?:cpu|cuda):(\d+)", name)
    if device:
        return "device", int(device[1]), f"device {device[1]}"
    if name != "main":
        return "link", pid, f"rank {pid}, link"
    if any(re.match(r"(cpu|cuda):", other) for other in names):
        return "drives", 0, "main thread"
    return "device", pid, f"rank {pid}"


def read_step(events):
    """The shortest step of a trace's events, in microseconds since it began: {step, tracks, spans, ready}.

    tracks  {kind, device, label, thread: the trace's name of it}
    spans   [track, begin, end, phase, bucket or unit or -1, bytes or 0], the longer before those inside it
    ready   [device, bucket, time]: when a bucket's last gradient was ready, or a unit's gather or reduction was enqueued
    """
    spans = [e for e in events if e["ph"] == "X"]
    step, begin, end = shortest_step(spans_of(events))
    spans = [span for span in spans if not is_of_another(step, span["name"], argument(span, "number"))]
    last_begin = {}
    for span in spans:
        key = span["name"], span.get("args", {}).get("number")
        last_begin[key] = max(last_begin.get(key, 0), span["ts"])
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}

    def since(time):
        return round(min(max(time, begin), end) - begin, 3)

    tracks, rows = [], []
    for (pid, tid), name in names.items():
        used = []
        for span in (s for s in spans if (s["pid"], s["tid"]) == (pid, tid)):
            for a, b, phase in phases_of(span, last_begin):
                if b > begin and a < end and b > a:
                    args = span.get("args", {})
                    used.append([len(tracks), since(a), since(b), phase, args.get("bucket", -1), args.get("bytes", 0)])
        if not used:
            continue
        kind, device, label = label_of(name, pid, [n for (p, _), n in names.items() if p == pid])
        tracks.append({"kind": kind, "device": device, "label": label, "thread": f"{pid} {name}"})
        rows += sorted(used, key=lambda row: (row[1], -row[2]))
    ready = [[e["pid"], e["args"]["bucket"], since(e["ts"])] for e in events
             if e["ph"] == "i" and e["name"] == "bucket is ready" and begin <= e["ts"] < end]
    return {"step": round(end - begin, 3), "tracks": tracks, "spans": rows, "ready": ready}


def read_scene(results, name, text, files):
    """{id, name, dp, ddp, fsdp, mine} of the traces; None where DP or DDP was not traced. mine: where a run of it did not fail."""
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
    """The page: its template with the style, the model, the data and the script."""
    parts = {"STYLE": HERE / "player.css", "MODEL": MODEL, "STEPS": HERE / "steps.js", "UNITS": HERE / "units.js", "DRAW": HERE / "draw.js",
             "PAGE": HERE / "page.js"}
    text = {mark: path.read_text(encoding="utf-8") for mark, path in parts.items()}
    text["DATA"] = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return re.sub(r"@([A-Z]+)@", lambda mark: text[mark[1]], (HERE / "player.html").read_text(encoding="utf-8"))


def write(folder):
    """player.html of the results in the folder."""
    results = Results(folder)
    if not results.has("profile.json"):
        return
    link = re.search(r"([0-9.e+-]+) Gbit/s and ([0-9.e+-]+) us", results.link)
    gbit, latency_us = (float(number) for number in (link.groups() if link else (10, 20)))
    scenes = [read_scene(results, *scene) for scene in
              (("memory", "through memory", "trace-{}.json"), ("link", f"over {gbit:g} Gbit/s", "trace-link-{}.json"))]
    data = {"network": traced_network(results), "profile": json.loads((results.folder / "profile.json").read_text()),
            "colours": phase_colours(), "mine": results.mine["file"] if results.mine else "",
            "gbit": gbit, "latency_us": latency_us, "scenes": [scene for scene in scenes if scene]}
    if data["scenes"]:
        (results.folder / "player.html").write_text(fill(data), encoding="utf-8")
