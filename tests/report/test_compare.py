#!/usr/bin/env python3
"""A comparison's output on the terminal and the data of its figures."""

import contextlib
import io
import json
import re
import unittest
import unittest.mock

from made import Made, row
from report import compare

STEPS = [row("single", "mlp", 1, 8), row("dp", "mlp", 2, 5, 1), row("ddp", "mlp", 2, 4, forward=2, backward=2)]
TRACE = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "main"}},
         {"ph": "X", "name": "forward", "pid": 0, "tid": 0, "ts": 0, "dur": 4000, "args": {"number": 2}},
         {"ph": "X", "name": "optimizer", "pid": 0, "tid": 0, "ts": 4000, "dur": 1000, "args": {"number": 2}}]


class Compared(unittest.TestCase):
    def test_terminal(self):
        """Tables whose columns fit, then sentences, then the disturbed and the untimed runs."""
        with Made(cores=2, models="mlp", timed="2", worlds="2", curve_models="mlp", epochs=3, untimed="8 devices were not timed.") as made:
            made.summary(*STEPS)
            made.csv("equivalence.csv", ["model", "a", "b", "what", "required", "max_ulp", "held"], ["toy", "dp:2", "ddp:2", "weight", "bitwise", 3, 0])
            for run in ("single-1", "dp-2", "ddp-2"):
                made.csv(f"runs/curve-mlp-{run}/steps.csv", ["step", "loss"], [0, 2], [1, 1])
            with contextlib.redirect_stdout(io.StringIO()) as said:
                shown = compare.Comparison(made.folder)
                shown.tell()
            self.assertEqual(shown.figures()["loss"][0], "mlp: the loss differs from one device's by at most 0.0e+00, at step 0 of 1.")
            self.assertTrue(shown.figures()["memory"][0].startswith("mlp on 2 devices: device 0 holds "))
        *found, sentences, lost = said.getvalue().strip().split("\n\n")
        self.assertEqual([re.split(r" {2,}", part.splitlines()[0]) for part in found], [
            ["network", "strategy", "devices", "samples/s", "step ms", "p25-p75", "speed-up"],
            ["network", "strategy", "devices", "device 0 MB", "others MB", "moved MB/step"],
            ["network", "strategy", "devices", "epochs", "last loss", "test accuracy", "best"],
            ["network", "a", "b", "required", "gradients ULP", "held"]])
        self.assertEqual([len(part.splitlines()) for part in found], [4, 4, 4, 2])
        self.assertIn("mlp, 2 devices: through memory, disturbed by other work; no conclusion.", sentences)
        self.assertEqual(lost.splitlines(), ["disturbed: mlp dp:2 (its runs lie 30 % apart)", "8 devices were not timed."])

    def test_what_is_not_there_is_not_shown(self):
        with Made() as made:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                compare.Comparison(made.folder).tell()
            self.assertEqual((said.getvalue().strip(), compare.Comparison(made.folder).figures()), ("", {}))

    def test_beside_the_reference(self):
        """Where both results have probes and differ; one device's step is named if it was timed and not disturbed."""
        kept = Made(cores=4, probe="1000 50.04", machine="Processor: A fast one, 4 cores")
        kept.summary(row("single", "mlp", 1, 2))
        for facts, steps, wanted in (({}, [], ""), ({"probe": "500 20"}, [], " and 20.0 GB/s."), ({"probe": "500 20"}, [row("single", "mlp", 1, 8, 1)], " and 20.0 GB/s."),
                                     ({"probe": "500 20"}, [row("single", "mlp", 1, 8)], "One device's step of mlp takes 2.0 ms there and 8.0 here."),
                                     (kept.results.facts, [], "")):
            with Made(**facts) as made, unittest.mock.patch.object(compare, "REFERENCE", kept.folder):
                made.summary(*(steps or [row("dp", "mlp", 2, 5)]))
                said = compare.Comparison(made.folder).reference_line()
            self.assertEqual(said[-len(wanted):] if wanted else said, wanted)
            if wanted:
                self.assertTrue(said.startswith("The reference result (bench/results/two-cores) was made on 4 cores of A fast one, which reach 1000 GFLOP/s and 50.0 GB/s; "
                                                "this one on 2 cores of an unknown processor, which reach 500 GFLOP/s"), said)
        kept.temporary.cleanup()

    def test_timeline(self):
        """The traces over the link if both results have them, else those through memory."""
        with Made(cores=2, models="mlp", timed="2", link="an emulated link of 10 Gbit/s and 20 us") as made:
            made.summary(*STEPS)
            for name, wanted in (("trace-link-dp", {}), ("trace-dp", {"dp"}), ("trace-link-ddp", {"dp", "ddp"})):
                made.write(f"{name}.json", [json.dumps(TRACE)])
                found = compare.Comparison(made.folder)
                self.assertEqual((set(found.steps), found.over), (set(wanted), "link-" if len(wanted) == 2 else ""))
                self.assertEqual("timeline" in found.figures(), bool(wanted))
            self.assertEqual(list(found.figures()), ["difference", "throughput", "phases", "memory", "timeline"])
            made.write("disturbed.txt", ["timeline-dp"])
            self.assertFalse(found.is_step_disturbed())
            made.write("disturbed.txt", ["timeline-link-ddp"])
            self.assertTrue(found.is_step_disturbed())

    def test_buckets_without_a_cap(self):
        """A cap of 0 is drawn at a quarter of the smallest cap, because the figure's logarithmic scale has no 0."""
        for caps, wanted in (((0, 1, 25), ["0.25", "1", "25"]), ((0, 2), ["0.5", "2"]), ((0,), ["0.25"])):
            with Made(models="mlp") as made:
                made.csv("buckets.csv", ["cap_mb", "step_ms_p50"], *([cap, 5] for cap in caps))
                (made.folder / "plots").mkdir()
                compare.Comparison(made.folder).lay_out()
                self.assertEqual([one["position"] for one in made.results.rows("plots/buckets.csv")], wanted)

    def test_phases(self):
        """A bar's parts are in the order of a step's phases."""
        with Made(cores=2) as made:
            made.summary(*STEPS)
            compare.lay_out_phases(made.folder / "phases.csv", made.results.summary("mlp"))
            found = made.results.rows("phases.csv")
        self.assertEqual([(one["row"], one["label"], one["disturbed"]) for one in found if one["phase"] == "data"],
                         [("1", "one device", "0"), ("2", "DP 2", "1"), ("3", "DDP 2", "0")])
        self.assertEqual([(one["phase"], one["begin_ms"], one["end_ms"]) for one in found if one["row"] == "3" and one["begin_ms"] != one["end_ms"]],
                         [("forward", "0.0000", "2.0000"), ("backward", "2.0000", "4.0000")])


if __name__ == "__main__":
    unittest.main()
