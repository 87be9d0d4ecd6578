#!/usr/bin/env python3
"""The data in player.html for a hand-made trace, and for files that are not traces. (The browser's part:
tests/programs/player.py.)"""

import json
import unittest

from made import Made
from report import player, traces
from report.results import ReportError

PROFILE = {"rows": [8, 16], "tensors": [{"bytes": 64, "ready": 1}]}


def span(name, tid, begin, length, pid=0, **arguments):
    return dict(ph="X", name=name, pid=pid, tid=tid, ts=begin, dur=length, args=arguments)


def two_ranks():
    """Steps that begin at 100, 200 and 300 count; the second is the shortest, 80 long. Rank 1 begins its bucket 10
    later."""
    events = [dict(ph="M", name="thread_name", pid=pid, tid=tid, args=dict(name=name))
              for pid in (0, 1) for tid, name in enumerate(["main", "comm"])]
    for step, (at, long) in enumerate([(0, 10), (20, 5), (100, 90), (200, 80), (300, 90)]):
        for pid in (0, 1):
            events += [span("backward", 0, at + pid, long - 11, pid, number=step),
                       span("optimizer", 0, at + long - 10, 10 - pid, pid, number=step)]
    for pid, begin in ((0, 230), (1, 240)):
        events += [span("all_reduce", 1, begin, 260 - begin, pid, number=7, bucket=4, bytes=64),
                   dict(ph="i", name="bucket is ready", pid=pid, tid=0, ts=begin - 5, args=dict(bucket=4))]
    return events


class Player(unittest.TestCase):
    def test_step(self):
        step = traces.read_step(two_ranks())
        self.assertEqual(step["step"], 80)
        self.assertEqual([(track["kind"], track["device"], track["label"]) for track in step["tracks"]],
                         [("device", 0, "rank 0"), ("link", 0, "rank 0, link"), ("device", 1, "rank 1"), ("link", 1, "rank 1, link")])
        self.assertEqual(step["spans"], [
            [0, 0, 69, "backward", -1, 0], [0, 70, 80, "optimizer", -1, 0], [1, 30, 40, "waiting", 4, 64], [1, 40, 60, "moving", 4, 64],
            [2, 1, 70, "backward", -1, 0], [2, 70, 79, "optimizer", -1, 0], [3, 40, 60, "moving", 4, 64]])
        self.assertEqual(step["ready"], [[0, 4, 25], [1, 4, 35]])

    def test_late_rank(self):
        """Rank 0 ends the previous step while rank 1 is in this one; rank 1 begins the next one early: neither span
        is of this step."""
        events = two_ranks() + [span("optimizer", 0, 190, 15, number=2), span("data", 0, 275, 5, 1, number=4), span("forward", 0, 276, 2, 1, number=4)]
        self.assertEqual(traces.read_step(events), traces.read_step(two_ranks()))

    def test_units(self):
        """Collectives of fully sharded training have a phase of their name; those without a unit's name, as in a
        user's wrapper, have none."""
        sharded = span("all_gather", 1, 250, 10, number=8, bucket=2), span("reduce_scatter", 1, 262, 9, number=9, bucket=2), span("all_gather", 1, 272, 5, number=10)
        step = traces.read_step(two_ranks() + list(sharded))
        self.assertEqual([row[1:5] for row in step["spans"] if row[0] == 1][-3:], [[50, 60, "all_gather", 2], [62, 71, "reduce_scatter", 2], [72, 77, "moving", -1]])

    def test_threads_of_dp(self):
        names = ["main", "cpu:0", "cuda:1"]
        self.assertEqual([traces.label_of(name, 0, names)[:2] for name in names], [("drives", 0), ("device", 0), ("device", 1)])

    def page(self, **files):
        with Made(traced="mlp-8", link="an emulated link of 2.5 Gbit/s and 7 us") as made:
            for name, text in files.items():
                made.write(name.replace("_", "-") + ".json", [text if isinstance(text, str) else json.dumps(text)])
            player.write(made.folder)
            path = made.folder / "player.html"
            return path.read_text(encoding="utf-8") if path.exists() else None

    def test_page(self):
        trace = {"traceEvents": two_ranks()}
        text = self.page(profile=PROFILE, trace_dp=trace, trace_ddp=trace)
        self.assertNotRegex(text, "@[A-Z]+@")
        data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
        self.assertEqual((data["gbit"], data["latency_us"], data["network"]), (2.5, 7, "mlp-8"))
        self.assertEqual([list(scene) for scene in data["scenes"]], [["id", "name", "dp", "ddp"]])
        both = self.page(profile=PROFILE, trace_dp=trace, trace_ddp=trace, trace_link_dp=trace, trace_link_ddp=trace)
        self.assertIn('"name":"over 2.5 Gbit/s"', both)
        self.assertIn('"fsdp":{', self.page(profile=PROFILE, trace_dp=trace, trace_ddp=trace, trace_fsdp=trace))

    def test_no_page(self):
        trace = {"traceEvents": two_ranks()}
        self.assertIsNone(self.page(trace_dp=trace, trace_ddp=trace))
        for less in ({}, dict(trace_dp=trace)):  # predicted steps need no trace
            self.assertIn('"network":"mlp-8","profile":{"rows":[8,16]', self.page(profile=PROFILE, **less))
            self.assertIn('"scenes":[]', self.page(profile=PROFILE, **less))
        warm_up = {"traceEvents": [event for event in two_ranks() if event["args"].get("number", 0) < 2]}
        for broken in ("", "[]", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": [7]}', warm_up):
            with self.assertRaises(ReportError, msg=broken) as raised:
                self.page(profile=PROFILE, trace_dp=trace, trace_ddp=broken or "{")
            self.assertNotIn("trace-dp", str(raised.exception))

    def test_data_stay_data(self):
        page = player.fill({"network": "</script><b>", "text": "\\1 @MODEL@"})
        self.assertNotIn("</script><b>", page)
        self.assertIn('"\\\\1 @MODEL@"', page)


unittest.main()
