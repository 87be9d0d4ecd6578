"""What a Chrome trace of a run (--trace) says: the shortest step's spans, and when buckets were ready and moved."""

import json
import re

from .look import PHASES
from .results import ReportError, median, unique

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
    """(step, begin, end) of the step that was disturbed least: from the first rank's begin to the last one's end."""
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
    """Is a span a phase of another step, which a rank that is late still ends, or an early one begins? Collectives count otherwise."""
    return name in PHASES and number not in (step, -1)


def step_of(path, label, like=None):
    """The shortest step of a run: tracks (row, label), spans (row, begin_ms, end_ms, phase, name, bucket) and arrows (from_row,
    from_ms, to_row, to_ms); rows from 1, times from the step's begin. All processes read the same clock.

    Spans that carry no phase's name are communication: "waiting" until the last rank has begun the same collective, then
    "moving". Arrows lead from where a bucket was ready to its all-reduce."""
    events = read_events(path)
    spans = spans_of(events)
    step, start, stop = shortest_step(spans)
    last_begin = {}
    for _, name, begin, _, number, _ in spans:
        last_begin[name, number] = max(begin, last_begin.get((name, number), begin))
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
             if event["ph"] == "M" and event["name"] == "thread_name"}
    tracks, drawn, row_of = [], [], {}
    for track, name_of_track in named.items():
        here = [span for span in spans if span[0] == track and span[3] > start and span[2] < stop and not is_of_another(step, span[1], span[4])]
        row_of[track] = len(tracks) + 1
        if not here:
            continue
        tracks.append((row_of[track], title_of(label, like or label.lower(), track[0], name_of_track)))
        for _, name, begin, end, number, bucket in here:
            come = min(last_begin[name, number], end)
            parts = [(begin, end, name)] if name in PHASES else [(begin, come, "waiting"), (come, end, "moving")]
            drawn += [(row_of[track], (max(a, start) - start) / 1000, (min(b, stop) - start) / 1000, phase, name, bucket)
                      for a, b, phase in parts if b > start and a < stop and b > a]
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    arrows = []
    for event in events:
        end = ends.get(event.get("id")) if event["ph"] == "s" else None
        if end and event["ts"] >= start and end["ts"] < stop:
            arrows.append((row_of[event["pid"], event["tid"]], (event["ts"] - start) / 1000,
                           row_of[end["pid"], end["tid"]], (end["ts"] - start) / 1000))
    return tracks, drawn, arrows


def title_of(label, like, rank, thread):
    """A row's: "rank 0 main" of DDP, "DP cpu:0", "yours 0 main" of a DDP of the reader's own."""
    if like in ("ddp", "fsdp"):
        return f"{'rank' if label == 'DDP' else label} {rank} {thread}"
    return f"{label} {thread}"


def with_waiting(tracks, spans):
    """DP's spans, and where its devices' threads have none: there they wait for device 0 and the thread that drives."""
    end = max(span[2] for span in spans)
    waiting = []
    for row, name in tracks:
        if re.search(r"(cpu|cuda):[0-9]+$", name):
            done = 0.0
            for begin, stop in sorted((span[1], span[2]) for span in spans if span[0] == row) + [(end, end)]:
                if begin > done:
                    waiting.append((row, done, begin, "waiting", "waiting", -1))
                done = max(done, stop)
    return spans + waiting


def overlap_of(path):
    """Medians over a DDP run's steps but the first two, in milliseconds: ready and moving, a list by bucket of the first rank;
    backward; exposed, from the end of the last rank's backward pass to the end of the last all-reduce; skew, how far the ranks'
    ends of backward lie apart. Times count from the begin of the step's backward pass; moving begins when the last rank has come."""
    events = read_events(path)
    spans = spans_of(events)
    begins, ends = {}, {}
    for track, name, begin, end, step, _ in spans:
        if name == "backward":
            begins[step, track[0]] = min(begin, begins.get((step, track[0]), begin))
            ends[step, track[0]] = max(end, ends.get((step, track[0]), end))
    steps = [step for step, rank in begins if rank == 0]
    if max(steps, default=0) < WARM_UP:
        raise ReportError(f"no steps in the trace {path.name}")

    def step_at(time):  # the step whose backward pass began last before that time
        return max((step for step in steps if begins[step, 0] <= time), key=lambda step: begins[step, 0], default=-1)

    ready, moving, last, finish, reduced = {}, {}, {}, {}, {}
    for event in events:
        if event["ph"] == "i" and "bucket is ready" in event["name"] and event["pid"] == 0:
            step = step_at(event["ts"])
            if step >= WARM_UP:
                ready.setdefault(argument(event, "bucket"), []).append((event["ts"] - begins[step, 0]) / 1000)
    for track, _, begin, end, number, bucket in spans:
        if bucket >= 0:
            last[number] = max(begin, last.get(number, begin))
            if track[0] == 0:
                finish[number] = end, bucket
    for number, (end, bucket) in finish.items():
        step = step_at(end)
        if step >= WARM_UP:
            moving.setdefault(bucket, []).append((end - last[number]) / 1000)
            reduced[step] = max(end, reduced.get(step, end))
    counted = [step for step in unique(steps) if step >= WARM_UP]
    late = {step: [end for (one, _), end in ends.items() if one == step] for step in counted}
    count = max(ready, default=-1) + 1
    return {
        "ready": [median(ready.get(bucket, [])) for bucket in range(count)],
        "moving": [median(moving.get(bucket, [])) for bucket in range(count)],
        "backward": median([(ends[step, 0] - begins[step, 0]) / 1000 for step in counted]),
        "exposed": median([max(reduced.get(step, 0) - max(late[step]), 0) / 1000 for step in counted]),
        "skew": median([(max(late[step]) - min(late[step])) / 1000 for step in counted]),
    }


def hidden_of(serial, overlapped):
    """How much of the all-reduces overlap could hide, and what it hid, in milliseconds. The serial run tells each bucket's time
    to move, and the backward pass when nothing else runs; the overlapped run when buckets were ready, as a share of its backward
    pass, and what was exposed."""
    alone, beside = serial["backward"], overlapped["backward"]
    total, done = sum(serial["moving"]), 0.0
    for ready, moving in zip(overlapped["ready"], serial["moving"]):
        done = max(done, ready * alone / beside) + moving  # a bucket moves when it is ready and the one before has moved
    can_hide = total - max(done - alone, 0.0)
    hidden = min(max(total - overlapped["exposed"], 0.0), can_hide)  # what is measured twice differs a little
    return {"all": total, "can_hide": can_hide, "hidden": hidden, "inflated": beside / alone}
