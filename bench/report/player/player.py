#!/usr/bin/env python3
"""player.py: one step of DataParallel above one of DistributedDataParallel, as a page that plays them.

    player.py OUT.html --network TEXT --profile FILE --scene ID NAME DP.json DDP.json [--scene ...]

Each --scene is a pair of Chrome traces (--trace of train_dp and train_ddp) that the page can switch to; NAME says
where the bytes moved ("through memory"). FILE is the network's profile (bench_profile --save): the page computes
steps over other links from it, by bench/model/step_model.js. --gbit and --latency-us say where its sliders begin.
The page has everything inside and loads nothing.

Of a trace the shortest step is taken, which was disturbed least: without the first two, from the first rank's begin
to the last one's end. Times are microseconds since that begin.
"""
import argparse
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "model" / "step_model.js"
PHASES = {"data": "#999999", "scatter": "#F0E442", "replicate": "#D55E00", "forward": "#56B4E9", "gather": "#CC79A7",
          "loss": "#332288", "backward": "#0072B2", "reduce": "#E69F00", "exposed": "#F2A6C4", "optimizer": "#00664B",
          "other": "#DDDDDD"}  # the colours of plots/style.gp


def shortest_step(spans):
    """(begin, end) of the step that took least, of all spans of threads that drive one."""
    driving = {(s["pid"], s["tid"]) for s in spans if s["name"] == "optimizer"}
    steps = {}
    for span in spans:
        step = span.get("args", {}).get("number", -1)
        if (span["pid"], span["tid"]) not in driving or step < 2:
            continue
        begin, end = steps.get(step, (float("inf"), 0))
        steps[step] = min(begin, span["ts"]), max(end, span["ts"] + span["dur"])
    if not steps:
        raise ValueError("no step with an optimizer after the first two")
    return min(steps.values(), key=lambda step: step[1] - step[0])


def phases_of(span, last_begin):
    """The parts (begin, end, phase) of a span. A collective waits until the last rank has begun it, then moves."""
    begin, end = span["ts"], span["ts"] + span["dur"]
    if span["name"] in PHASES:
        return [(begin, end, span["name"])]
    moves = min(last_begin[span["name"], span["args"]["number"]], end)
    return [(begin, moves, "waiting"), (moves, end, "moving")]


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
    """The shortest step of a trace's events: {step, tracks, spans, ready}.

    tracks  {kind, device, label, thread: the trace's name of it}
    spans   [track, begin, end, phase, bucket or -1, bytes or 0], the longer before those inside it
    ready   [device, bucket, time]: when a bucket's last gradient was ready
    """
    spans = [e for e in events if e["ph"] == "X"]
    begin, end = shortest_step(spans)
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


def read_scene(scene):
    name, text, *files = scene
    parts = []
    for file in files:
        try:
            parts.append(read_step(json.loads(pathlib.Path(file).read_text())["traceEvents"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"error: {file}: no trace of a training: {error}") from error
    return {"id": name, "name": text, "dp": parts[0], "ddp": parts[1]}


def fill(data):
    """The page: its template with the style, the model, the data and the script."""
    parts = {"STYLE": HERE / "player.css", "MODEL": MODEL, "STEPS": HERE / "steps.js", "DRAW": HERE / "draw.js",
             "PAGE": HERE / "page.js"}
    text = {mark: path.read_text() for mark, path in parts.items()}
    text["DATA"] = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return re.sub(r"@([A-Z]+)@", lambda mark: text[mark[1]], (HERE / "player.html").read_text())


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("out")
    parser.add_argument("--network", required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--scene", nargs=4, action="append", required=True, metavar=("ID", "NAME", "DP", "DDP"))
    parser.add_argument("--gbit", type=float, default=10)
    parser.add_argument("--latency-us", type=float, default=20)
    asked = parser.parse_args(arguments)
    data = {"network": asked.network, "colours": PHASES, "profile": json.loads(pathlib.Path(asked.profile).read_text()),
            "gbit": asked.gbit, "latency_us": asked.latency_us, "scenes": [read_scene(s) for s in asked.scene]}
    pathlib.Path(asked.out).write_text(fill(data))


if __name__ == "__main__":
    main(sys.argv[1:])
