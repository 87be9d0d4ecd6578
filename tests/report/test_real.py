#!/usr/bin/env python3
"""The model beside real steps: the measurements without a link and the values computed from them, the sentence in
both directions; and steps on many devices, from bench_scale's output."""

import unittest
import unittest.mock

from made import Made
from report import real, scale
from report.results import Row


def row(strategy, real_ms, lost=0, link="emulated 10 Gbit/s + 10 us"):
    return [link, strategy, "10.00", f"{real_ms:.2f}", f"{real_ms / 10:.3f}", lost]


def said(*made_rows, is_known=True):
    with Made() as made:
        return real.sentence(made.csv("real.csv", real.HEAD, *made_rows).results.rows("real.csv"), is_known)


class Fake(real.Measured):
    """With a simulated model: a step takes as many milliseconds as the link has Gbit/s; at 1e6 Gbit/s 8, with a
    straggler 10."""

    def model(self, strategy, gbit, latency_us, *options):
        self.asked = getattr(self, "asked", []) + [(strategy, gbit, latency_us)]
        return 8.0 if gbit == "1e6" and "--straggler" not in options else 10.0 if gbit == "1e6" else float(gbit)


class Real(unittest.TestCase):
    def test_sentence(self):
        self.assertEqual(said(row("dp", 10.5), row("ddp", 8.8)), "Two devices on emulated links: of 2 median steps 1 are within 10 % of the model; "
                         "the largest error is 12 %, of DDP over emulated 10 Gbit/s + 10 us.")
        self.assertTrue(said(row("dp", 11.2), row("ddp", 9.5)).endswith("12 %, of DP over emulated 10 Gbit/s + 10 us."))
        self.assertEqual(said(row("dp", 20, 1), row("ddp", 10)), "Two devices on emulated links: of 1 median steps 1 are within 10 % of the model; "
                         "the largest error is 0 %, of DDP over emulated 10 Gbit/s + 10 us. 1 of 2 were **disturbed** and are not counted.")
        self.assertEqual(said(row("dp", 20, 1)), "1 of 1 were **disturbed** and are not counted.")
        self.assertIn("no conclusion", said(row("dp", 10), is_known=False))

    def measured(self, *disturbed, faster=0):
        made = Made(rounds=1, rest="1000000,500", links="20,5")
        made.write("runs/profile/output.txt", ['model="mlp 8" rows=64 gradients=1000000 bytes tensors=2', "wake_us=20.0 after a sleep"])
        for run, ms, computing in (("dp-none", 16, 6), ("ddp-none", 12, 6), ("fsdp-none", 22, 6), ("noop-none", 9, 6), ("dp-1000000,500", 20, 9), ("dp-20,5", 22, 6),
                                   ("ddp-20,5", 15, 6), ("fsdp-20,5", 25, 6)):
            made.csv(f"runs/{run}-1/steps.csv", ["step", "step_ms", "forward_ms", "loss_ms", "backward_ms"], [2, 99, 9, 9, 9], [3, ms - faster * ("-none" in run and run[0] != "n"), computing, 0, 0])
        with made.write("disturbed.txt", disturbed):
            measured = Fake(made.results, "")
            return measured, measured.rows()

    def test_numbers(self):
        """Without communication 9 ms, and 8 by the model; DDP's all-reduces add 3, DP's two copies 16 - 10, FSDP's
        three collectives 22 - 10."""
        measured, rows = self.measured()
        self.assertEqual([measured.slowdown, measured.rested_slowdown, measured.sum_us, measured.copy_us, measured.shard_us],
                         [1.125, 1.6875, 3000, 3000, 4000])
        quick, _ = self.measured(faster=13)  # than the algebra without a link
        self.assertEqual([quick.sum_us, quick.copy_us, quick.shard_us], [0, 0, 0])
        self.assertEqual(rows, [["emulated 20 Gbit/s + 5 us", "dp", "20.00", "22.00", "1.100", 0], ["emulated 20 Gbit/s + 5 us", "ddp", "20.00", "15.00", "0.750", 0],
                                ["emulated 20 Gbit/s + 5 us", "fsdp", "20.00", "25.00", "1.250", 0]])
        self.assertEqual(measured.asked, [("ddp", "1e6", 0), ("dp", "1e6", 0), ("fsdp", "1e6", 0), ("dp", "20", 25.0), ("ddp", "20", 15.0), ("fsdp", "20", 25.0)])

    def test_algebra(self):
        """bench_scale's step of that strategy on two devices."""
        printed = [Row(devices=devices, strategy=strategy, step=step) for devices, strategy, step in (("1", "dp", "1"), ("2", "ddp", "2"), ("2", "dp", "3"))]
        with Made() as made, unittest.mock.patch.object(real, "scaled", return_value=printed) as asked:
            measured = real.Measured.__new__(real.Measured)
            measured.results, measured.programs = made.results, "bin"
            self.assertEqual([measured.model(strategy, "10", 5, "--sum-us", 1) for strategy in ("dp", "ddp")], [3, 2])
            self.assertEqual(asked.call_args.args, ("bin", made.folder / "profile.json", "--devices", 2, "--bucket-cap-mb", 1, "--gbit", "10",
                                                    "--latency-us", 5, "--sum-us", 1))

    def test_disturbed(self):
        self.assertTrue(self.measured("ddp-20,5-1")[0].is_known)
        self.assertEqual(self.measured("ddp-20,5-1")[1][1][-1], 1)
        for run in ("profile", "noop-none-1", "fsdp-none-1", "dp-1000000,500-1"):
            self.assertFalse(self.measured(run)[0].is_known)


PRINTED = """# mlp
devices,strategy,step,efficiency{0}
1,dp,10,1{1}
1,ddp,10,1{1}
1,fsdp,10,1{1}
8,dp,40,0.25{2}
8,ddp,{4},{5}{3}
8,fsdp,{6},{7}{2}
# a line"""


class Scale(unittest.TestCase):
    def rows(self, *ddp, simulated=("", "", "", "")):
        with Made() as made:
            made.write("facts.txt", ["cases 1-ring 1-tree 1-hierarchical 2-hierarchical", "stragglers 1"])
            for case, step in zip(made.results.words("cases"), ddp):
                made.write(f"runs/{case}-1/output.txt", PRINTED.format(*simulated, step, 10 / step, step + 6, 10 / (step + 6)).splitlines())
            return made.csv("scale.csv", scale.HEAD, *scale.collect(made.results)).results.rows("scale.csv")

    def test_sentence(self):
        rows = self.rows(30, 20, 15, 12)
        self.assertEqual(len(rows), 14)
        self.assertEqual(scale.sentence(rows), "On 8 devices a step takes, in ms: DP 40.0; DDP 30.0 by a ring, 20.0 by a tree, 15.0 by rings of rings and "
                         "12.0 with fast nodes of 8; FSDP 36.0 by rings and 18.0 with fast nodes of 8. The largest number of devices with an efficiency of at "
                         "least one half: DP 1; DDP 1 by a ring, 8 by a tree, 8 by rings of rings and 8 with fast nodes of 8; FSDP 1 by rings and 8 "
                         "with fast nodes of 8.")

    def test_simulated(self):
        rows = self.rows(20, 20, 20, 20, simulated=(",simulated", ",10", ",not simulated", ",20.1"))
        self.assertTrue(scale.sentence(rows).endswith(" SimGrid simulates 11 of these 14 steps, and the algebra is within 0.50 % of it."))
        panel = scale.Panel(rows, "1")
        self.assertEqual(panel.table()[-1], ["8", "40.0", "20.0", "20.0", "20.0", "20.0", "26.0", "26.0", "4 of 7"])
        self.assertEqual(panel.plot()[-1][:5], ["8", "40", "NaN", "20", "20.1"])


if __name__ == "__main__":
    unittest.main()
