"""Reads a Chrome trace of a run (--trace): the shortest step's spans, and the times at which buckets were ready and moved."""

import json
import re

from .look import PHASES
from .results import ReportError, median

WARM_UP = 2  # steps at the start of a run that do not count


def read_events(path):
    text = path.read_text(encoding="utf-8")
    events = json.loads(text)
    return events["traceEvents"] if isinstance(events, dict) else events


def argument(event, key):
    return event.get("args", {}).get(key, -1)


def spans_of(events):
    """The spans as (track, name, begin, end, number, bucket), times in microseconds."""
    return [((event["pid"], event["tid"]), event["name"], event["ts"], event["ts"] + event.get("dur", 0), argument(event, "number"),
             argument(event, "bucket")) for event in events if event["ph"] == "X"]


def shortest_step(spans):
    """(step, begin, end) of the shortest step, which was disturbed least, from the first rank's begin to the last rank's end."""
    main = {track for track, name, *_ in spans if name == "optimizer"}
    if not main:
        raise ReportError("no optimizer step in the trace")
    steps = {}
    for track, _, begin, end, step, _ in spans:
        if track in main and step >= WARM_UP:
            first, last = steps.get(step, (begin, end))
            steps[step] = min(first, begin), max(last, end)
    return min(((step, *times) for step, times in steps.items()), key=lambda step: step[2] - step[1])


def is_of_another(step, name, number):
    """Whether a span is a phase of another step, of a rank that is behind or ahead. False for a collective, whose number counts collectives."""
    return name in PHASES and number not in (step, -1)


def phases_of(span, last_begin):
    """The parts [(begin, end, phase)] of a span. A collective is "waiting" until the last rank has begun it, then "moving", or, for a unit
    of FSDP, "all_gather" or "reduce_scatter"."""
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


def step_of(path, label, like=None):
    """The shortest step of a run for the timeline: tracks (row, label), spans (row, begin_ms, end_ms, phase, bucket) and arrows (from_row,
    from_ms, to_row, to_ms), each from the time at which a bucket was ready to its all-reduce. Rows count from 1."""
    step = read_step(read_events(path))
    owner, of_ranks = "rank" if label == "DDP" else label, (like or label.lower()) in ("ddp", "fsdp")
    tracks = [(i + 1, f"{owner} {track['thread'] if of_ranks else track['thread'].partition(' ')[2]}") for i, track in enumerate(step["tracks"])]
    spans = [(i + 1, begin / 1000, end / 1000, phase if phase in PHASES or phase == "waiting" else "moving", bucket)
             for i, begin, end, phase, bucket, _ in step["spans"]]
    row_of = {(track["kind"], track["device"]): i + 1 for i, track in enumerate(step["tracks"])}
    arrows = []
    for rank, bucket, ready in step["ready"]:
        row = row_of["link", rank]
        begins = [span[1] for span in spans if (span[0], span[4]) == (row, bucket) and span[1] >= ready / 1000]
        if begins:
            arrows.append((row_of["device", rank], ready / 1000, row, min(begins)))
    return tracks, spans, arrows


def with_waiting(tracks, spans):
    """DP's spans, with a "waiting" span in each gap of a device's thread: there it waits for device 0 and the main thread."""
    end = max(span[2] for span in spans)
    waiting = []
    for row, name in tracks:
        if re.search(r"(cpu|cuda):[0-9]+$", name):
            done = 0.0
            for begin, stop in sorted((span[1], span[2]) for span in spans if span[0] == row) + [(end, end)]:
                if begin > done:
                    waiting.append((row, done, begin, "waiting", -1))
                done = max(done, stop)
    return spans + waiting


def overlap_of(path):
    """Medians over a DDP run's steps after WARM_UP, in milliseconds:

    ready     rank 0's list by bucket, counted from the begin of the step's backward pass
    moving    rank 0's list by bucket, from the last rank's begin of the all-reduce to its end
    backward  rank 0's backward pass
    exposed   from the end of the last rank's backward pass to the end of the last all-reduce
    skew      from the first rank's end of backward to the last rank's
    """
    events = read_events(path)
    spans = spans_of(events)
    passes, last = {}, {}  # {(step, rank): (begin, end) of backward}, {collective: the last rank's begin}
    for (rank, _), name, begin, end, number, bucket in spans:
        if name == "backward":
            first, final = passes.get((number, rank), (begin, end))
            passes[number, rank] = min(first, begin), max(final, end)
        if bucket >= 0:
            last[number] = max(begin, last.get(number, begin))
    begins = {step: begin for (step, rank), (begin, _) in passes.items() if rank == 0 and step >= WARM_UP}
    if not begins:
        raise ReportError(f"no steps in the trace {path.name}")

    def step_at(time):  # the step whose backward began last before this time; None during the warm-up
        return max((step for step, begin in begins.items() if begin <= time), key=begins.get, default=None)

    ready, moving, reduced = {}, {}, {}
    for event in events:
        if event["ph"] == "i" and "bucket is ready" in event["name"] and event["pid"] == 0:
            step = step_at(event["ts"])
            if step is not None:
                ready.setdefault(argument(event, "bucket"), []).append((event["ts"] - begins[step]) / 1000)
    for (rank, _), _, _, end, number, bucket in spans:
        step = step_at(end)
        if bucket >= 0 and rank == 0 and step is not None:
            moving.setdefault(bucket, []).append((end - last[number]) / 1000)
            reduced[step] = max(end, reduced.get(step, end))
    late = {step: [end for (one, _), (_, end) in passes.items() if one == step] for step in begins}
    buckets = range(max(ready, default=-1) + 1)
    return {
        "ready": [median(ready.get(bucket, [])) for bucket in buckets],
        "moving": [median(moving.get(bucket, [])) for bucket in buckets],
        "backward": median([(passes[step, 0][1] - begin) / 1000 for step, begin in begins.items()]),
        "exposed": median([max(reduced.get(step, 0) - max(late[step]), 0) / 1000 for step in begins]),
        "skew": median([(max(late[step]) - min(late[step])) / 1000 for step in begins]),
    }


def hidden_of(serial, overlapped):
    """{all, can_hide, hidden: ms of all-reduces; inflated: backward's slowdown beside communication}, from overlap_of of two runs. The
    serial run has each bucket's time to move and the backward pass alone; the overlapped run has the times at which buckets were ready,
    scaled to the serial backward pass, and the exposed time."""
    alone, beside = serial["backward"], overlapped["backward"]
    total, done = sum(serial["moving"]), 0.0
    for ready, moving in zip(overlapped["ready"], serial["moving"]):
        done = max(done, ready * alone / beside) + moving  # a bucket moves after the bucket before it
    can_hide = total - max(done - alone, 0.0)
    hidden = min(max(total - overlapped["exposed"], 0.0), can_hide)  # two runs differ slightly
    return {"all": total, "can_hide": can_hide, "hidden": hidden, "inflated": beside / alone}
