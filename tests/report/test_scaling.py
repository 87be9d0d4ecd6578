#!/usr/bin/env python3
"""Steps by link, devices and batch: both signs, ties, disturbed and missing rows; and the values computed from runs."""

import json
import unittest

from made import Made
from report import held, scaling


def row(strategy, world, batch, gbit, ms, disturbed=0):
    """Quartiles 2 % below and above the median."""
    return [strategy, world, batch, gbit, ms * 0.98, ms, ms * 1.02, 4, 4, disturbed]


def rows(*made_rows):
    with Made() as made:
        return made.csv("scaling.csv", scaling.HEAD, *made_rows).results.rows("scaling.csv")


def links(**of):
    """Steps over 1, 10 and 100 Gbit/s by strategy; None: not measured; a string: disturbed."""
    of = {"dp": [80, 20, 10], "ddp": [40, 10, 5], "fp16": [20, 9, 6], "powersgd": [10, 12, 8], **of}
    return scaling.Links(rows(*(row(strategy, 2, 300, gbit, float(ms), int(isinstance(ms, str))) for strategy, times in of.items()
                                for gbit, ms in zip((1, 10, 100), times) if ms is not None)), 300)


class ByLink(unittest.TestCase):
    def test_ddp_beside_dp(self):
        self.assertEqual(links().sentence(), "Over 1 Gbit/s DDP's step takes 50 % less than DP's (40.0 and 80.0 ms), over 100 Gbit/s DDP's step "
                         "takes 50 % less than DP's (5.0 and 10.0 ms). From 100 to 1 Gbit/s DP's step grows by 70.0 ms and DDP's "
                         "by 35.0: 2.0 times as much.")
        self.assertEqual(links(ddp=[88, 22, 10.1]).sentence(), "Over 1 Gbit/s DDP's step takes 10 % more than DP's (88.0 and 80.0 ms), over 100 "
                         "Gbit/s DDP's step takes as long as DP's (10.1 and 10.0 ms). From 100 to 1 Gbit/s DP's step grows by 70.0 "
                         "ms and DDP's by 77.9: 0.9 times as much.")
        self.assertTrue(links(ddp=["40", 10, "5"]).sentence().endswith("Over 10 Gbit/s DDP's step takes 50 % less than DP's (10.0 and 20.0 ms)."))
        self.assertEqual(links(ddp=["40", "10", None]).sentence(), "DP and DDP: disturbed; no conclusion.")

    def test_crossing(self):
        """10 % less at 10 Gbit/s and 20 % more at 100: the crossing is at 0.3663 of the distance, in logarithms."""
        text, (gbit, ms) = links().pays("fp16")
        self.assertEqual(text, "Below 23 Gbit/s fp16 pays: a step takes 50 % less at 1 Gbit/s and 20 % more at 100 Gbit/s.")
        self.assertAlmostEqual(gbit, 10 ** 1.36624, places=3)
        self.assertAlmostEqual(ms, 10 * 0.5 ** 0.36624, places=3)

    def test_a_tie_at_the_crossing(self):
        self.assertTrue(links(fp16=[20, 10.1, 10]).pays("fp16")[0].startswith("Below 9.7 Gbit/s fp16 pays"))
        self.assertTrue(links(fp16=[20, 9.9, 10]).pays("fp16")[0].startswith("Below 10 Gbit/s fp16 pays"))

    def test_never_and_always(self):
        self.assertEqual(links(fp16=[44, 11, 5]).pays("fp16"), (
            "fp16 never pays from 1 to 100 Gbit/s: a step takes 10 % more at 1 Gbit/s and as long at 100 Gbit/s.", None))
        self.assertEqual(links(fp16=[20, 5, 4]).pays("fp16"), (
            "fp16 always pays from 1 to 100 Gbit/s: a step takes 50 % less at 1 Gbit/s and 20 % less at 100 Gbit/s.", None))
        self.assertEqual(links(fp16=[20, 10.1, 5]).pays("fp16")[0], "fp16 pays at 1 Gbit/s, and at no other link from 1 to 100 Gbit/s does it change "
                         "anything beyond the quartiles: a step takes 50 % less at 1 Gbit/s and as long at 100 Gbit/s.")
        self.assertEqual(links(fp16=[40, 10, 5]).pays("fp16")[0], "fp16 changes nothing beyond the quartiles from 1 to 100 Gbit/s: a step takes as "
                         "long at 1 Gbit/s and as long at 100 Gbit/s.")

    def test_no_single_bandwidth(self):
        for times, words in (([44, 9, 4], "at 10 and 100 Gbit/s, and does not at 1:"), ([20, 11, 4], "at 1 and 100 Gbit/s, and does not at 10:")):
            text, at = links(fp16=times).pays("fp16")
            self.assertIn(f"No single bandwidth bounds where fp16 pays: it does {words}", text)
            self.assertIsNone(at)

    def test_disturbed(self):
        text, (gbit, _) = links(fp16=[20, "9", 6]).pays("fp16")
        self.assertTrue(text.endswith("(1 link disturbed)."))
        self.assertAlmostEqual(gbit, 100 ** 0.79175, places=2)  # ln 2 of ln 2 + ln 1.2
        self.assertEqual(links(ddp=["40", "10", "5"]).pays("fp16"), ("fp16: disturbed; no conclusion.", None))
        self.assertEqual(links(powersgd=[]).pays("powersgd"), ("PowerSGD: disturbed; no conclusion.", None))


class ByDevices(unittest.TestCase):
    def said(self, dp=(25, 40), ddp=(15, 20), worlds=(2, 3, 4), cores=2, more=(60, 30), lost=0):
        """dp, ddp: steps on two devices, strong and weak; more: on four devices, weak."""
        return scaling.device_sentences(rows(
            row("single", 1, 300, "none", 20), row("single", 1, 150, "none", 10, lost),
            *(row(strategy, 2, 300, 10, strong) for strategy, (strong, _) in (("dp", dp), ("ddp", ddp))),
            row("dp", 4, 600, 10, more[0]), row("ddp", 4, 600, 10, more[1])), 300, list(worlds), "10", cores)

    def test_strong_and_weak(self):
        strong, weak, more = self.said()
        self.assertEqual(strong, "Strong scaling, 300 rows: beside one device's, a step on 2 takes 1.25 times as long under DP and 0.75 times as "
                         "long under DDP (perfect: 0.50).")
        self.assertEqual(weak, "Weak scaling, 150 rows per device: beside one device's, a step on 2 takes 2.50 times as long under DP and 1.50 "
                         "times as long under DDP (perfect: 1.00).")
        self.assertEqual(more, "3 and 4 devices share 2 cores (thin lines, open marks), which shows no speed-up, but DDP compared with DP: on 4, with 150 "
                         "rows each, DDP's step takes 50 % less than DP's.")

    def test_ties_and_signs(self):
        strong, weak, more = self.said(dp=(20.1, 40), ddp=(10, 20), worlds=(2, 4), more=(60, 90))
        self.assertIn("takes as long under DP and 0.50 times as long under DDP", strong)
        self.assertTrue(more.startswith("4 devices share") and more.endswith("DDP's step takes 50 % more than DP's."))
        self.assertTrue(self.said(more=(60, 60.5))[2].endswith("DDP's step takes as long as DP's."))

    def test_enough_cores(self):
        self.assertEqual(len(self.said(cores=4)), 2)
        self.assertEqual([line[:9] for line in self.said(cores=1)], ["2, 3 and "])

    def test_disturbed(self):
        self.assertIn("takes (disturbed) under DP and (disturbed) under DDP", self.said(lost=1)[1])
        self.assertTrue(self.said(worlds=(2, 5))[2].endswith("but DDP compared with DP: disturbed."))


class ByBatch(unittest.TestCase):
    def said(self, computed=90e6, more=101e6):
        with Made() as made:
            made.csv("scaling-batches.csv", ["strategy", "batch", "fits", "peak_bytes", "computed_bytes"],
                     ["dp", 48, 1, int(90e6), int(computed)], ["dp", 50, 0, int(101e6), int(more)])
            return scaling.batch_sentence(made.results.rows("scaling-batches.csv"), 100.0)

    def test_largest(self):
        text = "Into 100 MB on device 0 fit 48 rows under DP. Of these batches, and of batches with one row more per device, which must exceed it, {} of 2"
        self.assertTrue(self.said().startswith(text.format(2)))
        self.assertTrue(self.said(computed=90e6 + 1).startswith(text.format(1)))
        self.assertTrue(self.said(computed=90e6 + 1, more=99e6).startswith(text.format(0)))


class Runs(unittest.TestCase):
    def collected(self, *disturbed, last=10):
        with Made(configurations="dp-2-300-10 single-1-300-none", rounds=3) as made:
            for turn in (1, 2, 3):
                ms = last if turn == 3 else 10
                made.csv(f"runs/step-dp-2-300-10-{turn}/steps.csv", ["step", "step_ms"], [5, 99], [6, ms], [7, ms])
                made.csv(f"runs/step-single-1-300-none-{turn}/steps.csv", ["step", "step_ms"], [6, 8])
            made.write("disturbed.txt", [f"step-dp-2-300-10-{turn}" for turn in disturbed])
            return scaling.step_rows(made.results)

    def test_rows(self):
        self.assertEqual(self.collected(), [["single", "1", "300", "none", *["8.0000"] * 3, 3, 3, 0], ["dp", "2", "300", "10", *["10.0000"] * 3, 3, 3, 0]])

    def test_disturbed(self):
        self.assertEqual(self.collected(3, last=99)[1][4:], [*["10.0000"] * 3, 3, 2, 0])
        self.assertEqual(self.collected(2, 3, last=10)[1][7:], [3, 1, 1])
        self.assertEqual(self.collected(last=12.6)[1][7:], [3, 3, 1])
        self.assertEqual(self.collected(last=12.4)[1][7:], [3, 3, 0])



class Held(unittest.TestCase):
    SUMMARY = ["transformer.wte Embedding weight [5, 4] 20", "transformer.h.0.attn Linear weight [4, 4] 16", "transformer.h.1.attn Linear w 16",
               "transformer.ln_f LayerNorm weight [4] 4", "56 parameters (224 bytes), 0 elements in buffers"]

    def test_parameters(self):
        self.assertEqual(held.parameters_of(self.SUMMARY), (56, 24, 16))

    def test_formulas(self):
        """Computed by hand: 56 parameters, of which 24 are the root's and 16 each block's, on four devices, and 1000
        bytes of activations."""
        for strategy, wanted in (("single", 1896), ("dp", 1896), ("ddp", 1896), ("zero1", 448 + 112 + 1000), ("fsdp", 224 + 192 + 256 + 1000)):
            self.assertEqual(held.memory_formula(strategy, 4, (56, 24, 16), 1000), wanted, strategy)
        for strategy, wanted in (("ddp", 12 * 112), ("fsdp", 12 * 144), ("fsdp-whole", 12 * 112)):
            self.assertEqual(held.moved_formula(strategy, 4, (56, 24, 16)), wanted, strategy)

    def results(self, peak=1448, moved=300.0):
        made = Made(sizes="gpt-small", counted="2").write("runs/summary-gpt-small/output.txt", self.SUMMARY)
        for strategy, world, whole in (("single", 1, 1896), ("dp", 2, 1896), ("ddp", 2, 1896), ("zero1", 2, 1672), ("fsdp", 2, peak)):
            made.write(f"runs/hold-gpt-small-{strategy}-{world}-dry/output.txt", ["[0]: ddp: a model", "batch_bytes=100", "logits_bytes=300",
                       "activations_bytes=600", f"peak_bytes={whole} (0.00 GiB)", "batch_bytes=7"])
            made.write(f"runs/hold-gpt-small-{strategy}-{world}-trained/summary.json", ['{"peak_bytes_device0": 1896}'])
        for strategy in ("ddp", "fsdp", "fsdp-whole"):
            made.write(f"runs/hold-gpt-small-{strategy}-2-trained/summary.json",
                       [f'{{"peak_bytes_device0": {peak if strategy == "fsdp" else 1896}, "moved_bytes_per_step": {moved}}}'])
        return made

    def test_rows(self):
        with self.results() as made:
            rows = held.memory_rows(made.results)
            self.assertEqual(rows[0], ["gpt-small", "single", 1, 56, 24, 16, 1896, 1896, 1896, 1])
            self.assertEqual([row[-1] for row in rows], [1, 1, 1, 0, 0])  # ZeRO-1 was trained with other options; FSDP's formula gives 1896
            self.assertEqual(rows[-1][6:9], [1448, 1448, 448 + 192 + 256 + 1000])
            self.assertEqual(held.moved_rows(made.results)[1], ["fsdp", 2, 300, 576, "1.0000", 0])
        with self.results(peak=1950, moved=448.0) as made:
            self.assertEqual([row[-1] for row in held.memory_rows(made.results)][-1], 1)
            self.assertEqual([row[-1] for row in held.moved_rows(made.results)], [1, 0, 1])

    def test_sentences(self):
        with self.results(peak=1950) as made:
            made.csv("memory.csv", held.HEAD, *held.memory_rows(made.results)).csv("moved.csv", held.MOVED, *held.moved_rows(made.results))
            rows, moved = made.results.rows("memory.csv"), made.results.rows("moved.csv")
            self.assertEqual(held.memory_sentence(rows), "Device 0's memory for gpt-small on 2 devices: one device 0.00 MB, DP 0.00 MB, DDP 0.00 MB, "
                             "ZeRO-1 0.00 MB and FSDP 0.00 MB. 4 of 5 rows are within 3 % of the formula and took the dry run's bytes "
                             "where they were trained; the largest error is 2.85 %.")
            self.assertEqual(held.moved_sentence(moved), "gpt-small: FSDP moves 1.000 to 1.000 times DDP's bytes (formula 1.286), without reshard 1.000 "
                             "to 1.000 times DDP's bytes (formula 1.000); at most 47.92 % from the formulas.")
            self.assertEqual(held.memory_table(rows)[1], ["gpt-small", "one device", "0.00 MB", "-", "1.0000 to 1.0000"])
            self.assertEqual(held.moved_table(moved)[2], ["FSDP", "2", "300", "576", "1.000"])


    def test_gathers(self):
        """Three steps of 10 ms, of which 6 ms compute: gathers of 1, 1 and 2 ms, with waits of 1, 1 and 0.5 ms.
        Another rank's spans and warm-up steps do not count, nor does one slow step of the three. Early: the first
        two gathers start in the optimizer; 1.5 of their 2 ms are waits of the next step, and count there."""
        def span(name, begin, length, pid=0):
            return {"ph": "X", "pid": pid, "tid": 1, "name": name, "ts": begin, "dur": length}

        events = []
        for begin in range(0, 40000, 10000):
            events += [span("exposed", begin, 2000), span("forward", begin + 2000, 6000), span("all_gather", begin, 1000),
                       span("all_gather", begin + 1000, 1000), span("all_gather", begin + 6500, 2000 + 9 * (begin == 20000)),
                       span("reduce_scatter", begin + 8000, 1000), span("exposed", begin + 8000, 1000), span("optimizer", begin + 9000, 900),
                       span("all_gather", begin, 9000, pid=1)]
        self.assertEqual(held.gathers_of(events, 1), [6, 4, 2, 2, 0.5])
        with Made(sharded=2) as made:
            early = [e for e in events if e["pid"] == 0 and not (e["name"] == "all_gather" and e["ts"] % 10000 < 2000)]
            early += [span("all_gather", begin + at, 1000) for begin in range(-10000, 30000, 10000) for at in (9500, 10500)]
            for turn in (1, 2):
                made.write(f"runs/shard-link-{turn}/trace.json", [json.dumps(events)])
                made.write(f"runs/shard-early-{turn}/trace.json", [json.dumps(early)])
                for name, ms in (("ddp", 10), ("fsdp", 11), ("link", 12), ("early", 11.5)):
                    made.csv(f"runs/shard-{name}-{turn}/steps.csv", ["step", "step_ms"], [0, 99], [1, ms], [2, ms])
            row = ["10.0000", "11.0000", "1.1000", "12.0000", "6.0000", "4.0000", "2.0000", "2.0000", "0.5000", "0.3750", "0.7500", "11.5000",
                   "0.5000", 0]
            self.assertEqual(held.sharded_rows(made.results, 1), [[1, *row], [2, *row]])

    def test_sharded(self):
        said = ("Through memory FSDP's step takes {} times as long as DDP's (aim: at most 1.15). Over 10 Gbit/s {} % of its 3.00 ms of gathers are "
                "hidden behind 6.00 ms of computing. Before the root's and the first block's, 0.50 ms, nothing computes, so that at most 83 % can be; of "
                "the others {} % are hidden. With --unshard-in-step, where those two begin in the optimizer's step, {} % of all are (aim: at least "
                "85 %).")
        rows = [[turn, 10, 10 * ratio, ratio, 12, 6, 3, 0.5, 0.5, 1, hidden, hidden + 0.05, 11, hidden + 0.1, disturbed]
                for turn, (ratio, hidden, disturbed) in enumerate(((1.1, 0.8, 0), (1.2, 0.9, 0), (3, 0.1, 1)))]
        with Made() as made:
            made.csv("some.csv", held.SHARDED, *rows).csv("most.csv", held.SHARDED, rows[0], rows[2], rows[2])
            self.assertEqual(held.sharded_sentence(made.results.rows("some.csv"), 10), said.format("1.15", "85", "90", "95"))
            self.assertEqual(held.sharded_sentence(made.results.rows("most.csv"), 10),
                             said.format("3.00", "10", "15", "20") + " Most rounds were disturbed by other work.")


if __name__ == "__main__":
    unittest.main()
