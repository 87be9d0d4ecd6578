#!/usr/bin/env python3
"""Spans, overlap and the part that could be hidden, from hand-made traces."""

import json
import unittest

from made import Made
from report import captions, traces
from report.results import ReportError


def overlap_trace():
    """Two warm-up steps and one that counts: rank 1 begins 0.2 ms after rank 0, and both communicate for 2.5 ms,
    until 0.5 ms after the end of rank 1's backward pass and 0.3 ms after the end of rank 0's."""
    events = []
    for step in range(3):
        at = step * 10000
        for rank, end in ((0, 4000), (1, 4300)):
            events.append(dict(ph="X", name="backward", pid=rank, tid=0, ts=at + 1000, dur=end, args=dict(number=step)))
        events.append(dict(ph="i", name="bucket is ready", pid=0, tid=0, ts=at + 3000, args=dict(bucket=0)))
        for rank, begin, dur in ((0, 3100, 2700), (1, 3300, 2500)):
            events.append(dict(ph="X", name="all_reduce", pid=rank, tid=1, ts=at + begin, dur=dur, args=dict(number=50 + step, bucket=0)))
    return events


def step_trace():
    """Steps of two ranks with one communication thread each; step 2, the first that counts, is the shortest counted
    one. Rank 1 begins its all-reduce 1 ms later."""
    events = [dict(ph="M", name="thread_name", pid=pid, tid=tid, args=dict(name=name))
              for pid in (0, 1) for tid, name in enumerate(("main", "communication"))]
    events += [dict(ph="M", name="process_name", pid=pid, tid=0, args=dict(name="a rank")) for pid in (0, 1)]
    for step, scale in ((0, 0.5), (1, 0.5), (2, 1), (3, 2)):
        at = step * 100000
        for rank in (0, 1):
            for name, begin, dur in (("forward", 0, 2000), ("backward", 2000, 4000), ("optimizer", 6000, 1000)):
                events.append(dict(ph="X", name=name, pid=rank, tid=0, ts=at + begin * scale, dur=dur * scale, args=dict(number=step)))
            begin = 3000 + 1000 * rank
            events.append(dict(ph="X", name="all_reduce", pid=rank, tid=1, ts=at + begin * scale, dur=(6000 - begin) * scale,
                               args=dict(number=step, bucket=0)))
            events.append(dict(ph="X", name="all_reduce", pid=rank, tid=1, ts=at + 6000 * scale, dur=500 * scale, args=dict(number=10 + step, bucket=1)))
            events.append(dict(ph="X", name="data", pid=rank, tid=0, ts=at, dur=10 * scale))  # belongs to no step
        events += [dict(ph="i", name="bucket is ready", pid=0, tid=0, ts=at + 3000, args=dict(bucket=bucket)) for bucket in (0, 1)]
    return events


class Traces(unittest.TestCase):
    def read(self, reader, events, *rest):
        with Made() as made:
            made.write("trace.json", [json.dumps(events)])
            return reader(made.folder / "trace.json", *rest)

    def test_overlap(self):
        self.assertEqual(self.read(traces.overlap_of, overlap_trace()),
                         {"ready": [2.0], "moving": [2.5], "backward": 4.0, "exposed": 0.5, "skew": 0.3})

    def test_nothing_is_exposed(self):
        """Rank 1's backward pass ends after the all-reduce."""
        events = [{**event, "dur": 5000} if (event["name"], event["pid"]) == ("backward", 1) else event for event in overlap_trace()]
        found = self.read(traces.overlap_of, events)
        self.assertEqual((found["exposed"], found["skew"]), (0, 1.0))

    def test_overlap_of_several_buckets(self):
        """Two buckets, the second ready 0.5 ms later; an earlier span of rank 0 determines the beginning of its
        pass."""
        events = overlap_trace()
        for step in range(3):
            at = step * 10000
            events.append(dict(ph="i", name="bucket is ready", pid=0, tid=0, ts=at + 3500, args=dict(bucket=1)))
            events += [dict(ph="X", name="all_reduce", pid=rank, tid=1, ts=at + 5800, dur=200, args=dict(number=80 + step, bucket=1)) for rank in (0, 1)]
            events.insert(0, dict(ph="X", name="backward", pid=0, tid=0, ts=at + 500, dur=100, args=dict(number=step)))
        found = self.read(traces.overlap_of, events)
        self.assertEqual([round(ms, 6) for ms in (*found["ready"], *found["moving"], found["backward"])], [2.5, 3.0, 2.5, 0.2, 4.5])

    def test_step(self):
        tracks, spans, arrows = self.read(traces.step_of, step_trace(), "DDP")
        self.assertEqual(tracks, [(1, "rank 0 main"), (2, "rank 0 communication"), (3, "rank 1 main"), (4, "rank 1 communication")])
        self.assertIn((1, 2.0, 6.0, "backward", -1), spans)
        self.assertIn((2, 3.0, 4.0, "waiting", 0), spans)
        self.assertIn((2, 4.0, 6.0, "moving", 0), spans)
        self.assertIn((1, 0.0, 0.01, "data", -1), spans)
        self.assertEqual([span for span in spans if span[0] == 4], [(4, 4.0, 6.0, "moving", 0), (4, 6.0, 6.5, "moving", 1)])
        self.assertEqual(arrows, [(1, 3.0, 2, 3.0), (1, 3.0, 2, 6.0)])
        late = [dict(ph="X", name="optimizer", pid=0, tid=0, ts=200000, dur=900, args=dict(number=1))]
        self.assertEqual(self.read(traces.step_of, step_trace() + late, "DDP")[1], spans)

    def test_waiting(self):
        """A device of DP waits while its thread has no span, also at the beginning and the end of the step; the
        driving thread does not wait."""
        tracks = [(1, "DP main"), (2, "DP cpu:0")]
        spans = [(1, 0, 10, "loss", -1), (2, 2, 4, "forward", -1), (2, 5, 8, "backward", -1)]
        self.assertEqual([span[:4] for span in traces.with_waiting(tracks, spans)[3:]],
                         [(2, 0.0, 2, "waiting"), (2, 4, 5, "waiting"), (2, 8, 10, "waiting")])

    def test_no_steps(self):
        self.assertRaises(ReportError, self.read, traces.overlap_of, overlap_trace()[:5])
        self.assertRaises(ReportError, self.read, traces.step_of, overlap_trace(), "DDP")

    def test_hidden(self):
        """Alone: backward 10, buckets of 3, 3 and 2, ready at 2, 8 and 10: they end at 5, 11 and 13, so at least 3
        of 8 stay exposed. 4 were exposed: hidden 4 of 5. Beside communication backward took 20, a factor of 2."""
        serial = {"ready": [10, 10, 10], "moving": [3, 3, 2], "backward": 10, "exposed": 8}
        overlapped = {"ready": [4, 16, 20], "moving": [9, 9, 9], "backward": 20, "exposed": 4}
        wanted = {"all": 8, "can_hide": 5, "hidden": 4, "inflated": 2}
        self.assertEqual(traces.hidden_of(serial, overlapped), wanted)
        self.assertEqual(traces.hidden_of(serial, {**overlapped, "exposed": 0}), {**wanted, "hidden": 5})
        with Made(fast_link="an emulated link of 100 Gbit/s and 3 us") as made:
            traced = {f"{where}-{how}": one for where in ("memory", "fast") for how, one in
                      (("serial", serial), ("overlapped", overlapped))}
            made.write("disturbed.txt", ["overlap-fast-serial"])
            self.assertEqual(captions.overlaps(made.results, traced), [
                ("shared memory", wanted), ("emulated link of 100 Gbit/s and 3 us", None)])


if __name__ == "__main__":
    unittest.main()
