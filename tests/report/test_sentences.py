#!/usr/bin/env python3
"""The answer, the captions and the causes: both signs, ties, disturbed and missing rows."""

import re
import unittest

from made import Made, row
from report import answer, captions
from report.results import ReportError

ONE = row("single", "mlp", 1, (29, 30, 31), forward=10, backward=20)
DP2 = row("dp", "mlp", 2, (17.5, 17.9, 18.2), replicate=0.4, forward=5, gather=0.1, backward=10, reduce=1.9, optimizer=0.4)
DDP2 = row("ddp", "mlp", 2, (14.9, 15.1, 15.3), forward=5, backward=9.2, exposed=0.3, optimizer=0.4)
ROWS = [
    ONE, DP2, DDP2,
    row("dp", "mlp", 4, (9.8, 10, 10.2), forward=4, backward=5, reduce=0.9),
    row("ddp", "mlp", 4, (10.9, 11, 11.2), forward=4, backward=5, exposed=2),
    row("single", "convnet", 1, (7, 8, 9), forward=8),
    row("dp", "convnet", 2, (4, 5, 6), forward=5),
    row("ddp", "convnet", 2, (4.5, 5.5, 6.5), forward=5.5),
    row("dp", "convnet", 4, (4, 5, 6), 1, forward=5),
    row("ddp", "convnet", 4, (1.5, 2.5, 3.5), forward=2.5),
]
LINK = [
    row("dp", "mlp", 2, (23, 24, 25), scatter=0.1, replicate=4, forward=5, gather=0.4, backward=10, reduce=4.5),
    row("ddp", "mlp", 2, (15, 16, 17), forward=5, backward=10, exposed=1),
]
NETWORKS = [["part", "model", "hidden", "layers", "parameters"], ["speed", "mlp", "1024;1024", "3", "1126410"]]


def disturb(rows):
    return [[*one[:4], 1, *one[5:]] for one in rows]


def made(rows=None, link=None, **facts):
    results = Made(cores=2, **facts)
    results.summary(*(rows or ROWS))
    if link:
        results.summary(*link, part="-link")
    return results


class Answers(unittest.TestCase):
    def lines(self, rows=None, link=None, **facts):
        with made(rows, link, **facts) as results:
            return answer.answer_lines(results.results)

    def test_ddp_wins(self):
        self.assertEqual(self.lines()[0], "mlp, 2 devices: through memory, DDP saves 2.80 ms of DP's 17.90 per step (15.6 %): reduce "
                         "-1.90, backward -0.80, replicate -0.40, exposed +0.30, all else 0.00. The largest saving is reduce: DP sums all "
                         "gradients on device 0.")

    def test_dp_wins(self):
        self.assertEqual(self.lines()[1], "mlp, 4 devices: through memory, DDP takes 1.00 ms more than DP's 10.00 per step (10.0 %): "
                         "exposed +2.00, reduce -0.90, all else -0.10. The largest cost is exposed: all-reduce that DDP's backward pass did "
                         "not hide, and waits for a slower rank. 4 devices share 2 cores, so each phase includes waits.")

    def test_tie(self):
        self.assertEqual(self.lines()[2], "convnet, 2 devices: through memory, DP and DDP tie: their steps take 5.00 and 5.50 ms, each "
                         "median within the other's quartiles. Per phase, DDP minus DP, in ms: forward +0.50, all else 0.00.")

    def test_disturbed(self):
        self.assertEqual(self.lines()[3], "convnet, 4 devices: through memory, disturbed by other work; no conclusion.")
        for line in self.lines(disturb(ROWS)):
            self.assertIn("no conclusion", line)

    def test_order(self):
        self.assertEqual([re.match(r"[^:]*: (through memory|over an emulated link of [^,]*)", line)[0] for line in self.lines(link=LINK)],
                         ["mlp, 2 devices: through memory", "mlp, 2 devices: over an emulated link of 10 Gbit/s and 20 us",
                          "mlp, 4 devices: through memory", "convnet, 2 devices: through memory", "convnet, 4 devices: through memory"])

    def test_sums(self):
        """The numbers in a sentence add up in spite of rounding."""
        rows = [ONE, row("dp", "mlp", 2, (17, 17.9, 18), forward=5.0049, reduce=1.3349, backward=10.0049, exposed=1.5553),
                row("ddp", "mlp", 2, (14, 15.1049, 16), forward=4.5, reduce=0, backward=9.2, exposed=1.4049)]
        line = self.lines(rows)[0]
        parts = [float(ms) for ms in re.findall(r" ([-+]?[0-9.]+)(?=[,.] )", line.split("%):")[1] + " ")]
        self.assertAlmostEqual(sum(parts), -float(re.search(r"saves ([0-9.]+)", line)[1]), places=6)

    def test_phases_that_do_not_add_up(self):
        with made() as results:
            path = results.folder / "difference.csv"
            path.write_text(path.read_text().replace("-1.9000", "-1.0000"))
            self.assertRaises(ReportError, answer.answer_lines, results.results)

    def test_reasons(self):
        """The reason is about the strategy whose phase is longer, in both directions; without such a phase there is
        no reason."""
        for phase in ("data", "scatter", "replicate", "forward", "gather", "loss", "backward", "reduce", "exposed", "optimizer"):
            for dp, ddp, strategy in ((9, 1, "DP"), (1, 9, "DDP")):
                rows = [ONE, row("dp", "mlp", 2, (19 + dp, 20 + dp, 21 + dp), other=20, **{phase: dp}),
                        row("ddp", "mlp", 2, (19 + ddp, 20 + ddp, 21 + ddp), other=20, **{phase: ddp})]
                line = self.lines(rows)[0]
                reason = answer.BECAUSE.get((strategy, phase))
                self.assertEqual(line.partition(f" The largest {'saving' if dp > ddp else 'cost'} is ")[2], f"{phase}: {reason}." if reason else "", (phase, strategy))
        self.assertFalse({phase for _, phase in answer.BECAUSE} & {"forward", "backward"})

    def test_missing_rows(self):
        self.assertEqual(self.lines([ONE, DP2]), [])


class LineOne(unittest.TestCase):
    head = "mlp-1024 (1.1 M parameters, 4.5 MB of gradients), 2 devices: "

    def line(self, rows, link=None):
        with made(rows, link) as results:
            results.csv("networks.csv", *NETWORKS)
            return answer.headline(results.results)

    def test_faster(self):
        self.assertEqual(self.line([ONE, DP2, DDP2], LINK), self.head + "DDP's step is 16 % shorter than DP's through memory and 33 % over 10 Gbit/s, "
                         "because there DP's device 0 sends and sums 9.0 ms a step while no device computes, and DDP still waits for 1.0 ms.")

    def test_the_place_of_the_reason(self):
        """The numbers are from the place with the larger share, and the sentence names that place."""
        slow = [row("dp", "mlp", 2, 100, forward=90, reduce=10), row("ddp", "mlp", 2, 95, forward=90, exposed=5)]
        self.assertIn("16 % shorter than DP's through memory and 5 % over 10 Gbit/s, because through memory DP's device 0 sends and sums 2.4 ms",
                      self.line([ONE, DP2, DDP2], slow))
        slower = [[row("dp", "mlp", 2, 10, forward=9, reduce=1), row("ddp", "mlp", 2, 10 + more, forward=9, exposed=1 + more)] for more in (2, 3)]
        self.assertIn("20 % longer than DP's through memory and 30 % over 10 Gbit/s, because there DDP waits for 4.0 ms",
                      self.line([ONE, *slower[0]], slower[1]))

    def test_faster_without_a_link(self):
        self.assertEqual(self.line([ONE, DP2, DDP2]), self.head + "DDP's step is 16 % shorter than DP's through memory, because DP's device 0 sends "
                         "and sums 2.4 ms a step while no device computes, and DDP still waits for 0.3 ms.")

    def test_tie(self):
        rows = [ONE, row("dp", "mlp", 2, (9, 10, 11), forward=10), row("ddp", "mlp", 2, (9.2, 10.2, 11.2), forward=10.2)]
        self.assertEqual(self.line(rows), self.head + "DP and DDP tie through memory.")
        self.assertEqual(self.line(rows, rows[1:]), self.head + "DP and DDP tie through memory and over 10 Gbit/s.")
        self.assertEqual(self.line(rows, LINK), self.head + "DP and DDP tie through memory; DDP's step is 33 % shorter than DP's over 10 Gbit/s, "
                         "because DP's device 0 sends and sums 9.0 ms a step while no device computes, and DDP still waits for 1.0 ms.")

    def test_slower(self):
        rows = [ONE, row("dp", "mlp", 2, (9.8, 10, 10.2), forward=9, reduce=1), row("ddp", "mlp", 2, (11.8, 12, 12.2), forward=9, exposed=3)]
        self.assertEqual(self.line(rows), self.head + "DDP's step is 20 % longer than DP's through memory, because DDP waits for 3.0 ms a step, and "
                         "DP's device 0 sends and sums only 1.0.")
        self.assertIn("DDP's step is 20 % longer than DP's through memory, because DDP waits", self.line(rows, LINK))
        self.assertIn("; DDP's step is 33 % shorter than DP's over 10 Gbit/s, because DP's device 0", self.line(rows, LINK))

    def test_slower_by_computing(self):
        rows = [ONE, row("dp", "mlp", 2, (9.8, 10, 10.2), forward=10), row("ddp", "mlp", 2, (11.8, 12, 12.2), forward=12)]
        self.assertEqual(self.line(rows), self.head + "DDP's step is 20 % longer than DP's through memory.")

    def test_disturbed(self):
        self.assertEqual(self.line(disturb([ONE, DP2, DDP2])),
                         self.head + "disturbed by other work through memory: no conclusion.")
        self.assertEqual(self.line(disturb([ONE, DP2, DDP2]), disturb(LINK)),
                         self.head + "disturbed by other work through memory and over 10 Gbit/s: no conclusion.")

    def test_missing(self):
        self.assertEqual(self.line([ONE]), "")

    def test_limits(self):
        with made() as results:
            self.assertEqual(answer.limit_line(results.results), "DDP is within 5 % of perfect scaling: its step takes 15.10 ms, and 1/2 of one "
                             "device's step is 15.00.")
            results.summary(ONE, DP2, row("ddp", "mlp", 2, 14.9, forward=5))
            self.assertEqual(answer.limit_line(results.results), "DDP scales perfectly: its step takes 14.90 ms, and 1/2 of one device's step "
                             "is 15.00.")
            results.summary(ONE, DP2, row("ddp", "mlp", 2, 20, forward=5, backward=12, exposed=2, optimizer=1))
            self.assertEqual(answer.limit_line(results.results), "DDP's distance to perfect scaling: its step takes 20.00 ms, and 1/2 of one "
                             "device's step is 15.00: computing beyond 1/2 of one device's (+2.00 ms); waiting for gradients (+2.00 ms); the "
                             "optimizer, which every rank runs whole (+1.00 ms).")
            results.summary(ONE, DP2, row("ddp", "mlp", 2, 20, forward=5, backward=9, exposed=1))
            self.assertEqual(answer.limit_line(results.results).partition("15.00: ")[2], "time in no phase (+5.00 ms); waiting for gradients "
                             "(+1.00 ms).")
            results.summary(*disturb([ONE, DP2, DDP2]))
            self.assertEqual(answer.limit_line(results.results), "")


class Captions(unittest.TestCase):
    def check(self, name, wanted, rows=None):
        with made(rows) as results:
            self.assertEqual(getattr(captions, name)(results.results), wanted)

    def test_world(self):
        for cores, world in ((1, 2), (2, 2), (8, 4)):
            with made() as results:
                results.facts(cores=cores)
                self.assertEqual(results.results.world, world)

    def test_difference(self):
        self.check("difference", "mlp: DDP saves 2.80 ms of DP's 17.90 per step (15.6 %); convnet: DP and DDP tie: their steps take 5.00 and 5.50 ms, "
                   "each median within the other's quartiles.")
        self.check("difference", "mlp: DDP takes 1.00 ms more than DP's 10.00 per step (10.0 %).",
                   [ONE, row("dp", "mlp", 2, 10, forward=10), row("ddp", "mlp", 2, 11, forward=10, exposed=1)])

    def test_throughput(self):
        self.check("throughput", "mlp: of the drawn lines the fastest is DP on 4 devices with 30000 samples per second, 3.00 times one device; convnet: of the "
                   "undisturbed lines the fastest is DDP on 4 devices with 120000 samples per second, 3.20 times one device.")
        self.check("throughput", "mlp: of the drawn lines none is faster than one device.", [row("single", "mlp", 1, 5), DP2, DDP2])
        self.check("throughput", "mlp: of the undisturbed lines the fastest is DP on 2 devices with 16760 samples per second, 1.68 times one device.",
                   [ONE, DP2, *disturb([DDP2])])
        one, dp, ddp = (row(strategy, "mlp", world, 10 * times) for strategy, world, times in (("single", 1, 2), ("dp", 2, 1.01), ("ddp", 2, 1)))
        self.check("throughput", "mlp: of the drawn lines the fastest is DDP on 2 devices with 30000 samples per second, 2.00 times one device (DP on 2 devices ties "
                   "with it).", [one, dp, ddp])
        slow = row("dp", "mlp", 2, 20)
        self.check("throughput", "mlp: of the drawn lines none is faster than one device.", [row("single", "mlp", 1, 10.1), slow, ddp])
        self.check("throughput", "mlp: of the undisturbed lines none is faster than one device.", [row("single", "mlp", 1, 10.1), ddp, *disturb([slow])])
        wide, sure = row("dp", "mlp", 2, (9, 10, 12)), row("ddp", "mlp", 2, 10.4)  # DP ties with one device, DDP does not
        self.check("throughput", "mlp: of the drawn lines the fastest is DP on 2 devices with 30000 samples per second, 1.10 times one device (one "
                   "device ties with it).", [row("single", "mlp", 1, (9.9, 11, 12)), wide, sure])

    def test_phases(self):
        self.check("phases", "mlp on 2 devices: moving data and waiting take 13.4 % of DP's step and 2.0 % of DDP's; convnet on 2 devices: "
                   "moving data and waiting take 0.0 % of DP's step and 0.0 % of DDP's.")

    def test_memory(self):
        self.check("memory", "mlp on 2 devices: device 0 holds 2.00 MB under DP and 2.00 MB under DDP; convnet on 2 devices: device 0 holds "
                   "2.00 MB under DP and 2.00 MB under DDP.")

    def test_heavy_on_device_0(self):
        for peak, wanted in ((1.5e6, ["mlp"]), (1.4e6, [])):
            with made([ONE, row("dp", "mlp", 2, 10, peak_bytes_device0=peak), DDP2]) as results:
                self.assertEqual(captions.heavy_on_device_0(results.results), wanted)

    def test_disturbed(self):
        for name in ("difference", "throughput", "phases"):
            self.check(name, "mlp: disturbed; convnet: disturbed.", disturb(ROWS))

    def test_loss(self):
        self.assertEqual(captions.loss("mlp", [["0", 2.5, 2.5, 2.5], ["1", 2.0, 2.001, 1.998]]),
                         "mlp: the loss differs from one device's by at most 2.0e-03, at step 1 of 1")

    def test_timeline(self):
        spans = [(1, 0, 99, "backward", "backward", -1), (3, 5, 10, "backward", "backward", -1)]
        self.assertEqual(captions.first_bucket(spans, [(3, 6, 4, 6.1), (3, 9, 4, 9.2), (5, 5, 6, 7)]),
                         "The first of DDP's 2 buckets is ready after 20 % of the backward pass.")
        self.assertEqual(captions.first_bucket(spans, []), "")
        dp = [(1, 0, 1, "data", -1), (1, 1, 5, "replicate", -1), (1, 17, 19, "reduce", -1), (1, 19, 20, "optimizer", -1),
              (2, 0, 10, "forward", -1), (2, 10, 20, "waiting", -1), (3, 0, 5, "waiting", -1), (3, 5, 20, "backward", -1)]
        steps = {"dp": ([], dp, []), "ddp": ([], [(1, 0, 12, "backward", "backward", -1)], [])}
        said = "Through memory, these steps of mlp-8x512 take {} ms on DP and {} on DDP: {}. DP's devices wait for {} ms of their step (hatched, without colour); " \
            "device 0 sends and sums for {}."
        self.assertEqual(captions.timeline(steps, "through memory", "mlp-8x512"),
                         said.format("20.0", "12.0", "the bracket is the time that DDP saves", "7.5", "6.0"))
        self.assertEqual(captions.timeline({**steps, "dp": steps["ddp"]}, "through memory", "mlp-8x512"),
                         said.format("12.0", "12.0", "here DDP saves nothing", "0.0", "0.0"))
        self.assertEqual(captions.timeline({}, "through memory", "mlp-8x512"), "")
        self.assertIn("allow no conclusion", captions.timeline(steps, "through memory", "mlp-8x512", True))

    def test_zero(self):
        rows = [row(strategy, "gpt", world, step, disturbed, timed=timed, peak_bytes_device0=peak, exposed=exposed, optimizer=update)
                for strategy, world, timed, disturbed, peak, step, exposed, update in (
                    ("ddp", 2, 1, 0, 21.5e6, 48, 1, 3), ("ddp", 4, 1, 0, 20e6, 50, 1, 3), ("ddp", 8, 0, 0, 20e6, 1, 0, 0),
                    ("zero1", 2, 1, 0, 18.25e6, 46.5, 0.6, 2), ("zero1", 4, 1, 1, 17e6, 50, 1, 3), ("zero1", 8, 0, 0, 16e6, 1, 0, 0))]
        with made(rows) as results:
            said = "gpt, {} devices: with the optimizer divided (ZeRO-1), a rank holds {} MB and DDP's {}, {} MB less"
            self.assertEqual(answer.sharded_lines(results.results), [
                said.format(2, "18.25", "21.50", "3.25") + "; a step takes 46.50 ms and DDP's 48.00, waiting for gradients and stepping 2.60 "
                "and 4.00, 0.65 times.",
                said.format(4, "17.00", "20.00", "3.00") + "; times were disturbed by other work, no conclusion.",
                said.format(8, "16.00", "20.00", "4.00") + "."])
        short = [row("ddp", "gpt", 2, 4, exposed=0.25, optimizer=0.25), row("zero1", "gpt", 2, 4, optimizer=0.125)]
        with made(short) as results:
            self.assertTrue(answer.sharded_lines(results.results)[0].endswith("waiting for gradients and stepping 0.12 and 0.50, 0.25 times."))
        with made() as results:
            self.assertEqual(answer.sharded_lines(results.results), [])
        with made([ONE, DP2, row("fsdp", "mlp", 2, 10)]) as results:  # without DDP's row
            self.assertEqual(answer.sharded_lines(results.results), [])

    def test_fsdp(self):
        ddp = row("ddp", "mlp", 2, 48, exposed=1, peak_bytes_device0=20.0049e6)
        said = ("mlp, 2 devices: fully sharded (FSDP), a rank holds {} MB and DDP's 20.00, {}, and moves 1.50 times DDP's bytes; a step "
                "takes 50.00 ms and DDP's 48.00, of which waiting for weights and gradients 2.00 and 1.00.")
        for peak, held, change in ((12e6, "12.00", "8.00 MB less"), (26e6, "26.00", "6.00 MB more"), (26.0051e6, "26.01", "6.01 MB more"), (20.003e6, "20.00", "as much")):
            fsdp = row("fsdp", "mlp", 2, 50, exposed=2, peak_bytes_device0=peak, moved_bytes_per_step=1.5e6)
            with made([*ROWS[:2], ddp, fsdp]) as results:
                self.assertEqual(answer.sharded_lines(results.results), [said.format(held, change)])
                self.assertIn(f"20.00 MB under DDP, {held} MB under FSDP", captions.memory(results.results))
                self.assertEqual(len(results.results.summary("mlp")), 3)


class Links(unittest.TestCase):
    def buckets(self, *steps, lost=()):
        rows = [[i + 1, cap, ms - 0.5, ms, ms + 0.5, int(cap in lost)] for i, (cap, ms) in enumerate(zip((0, 1, 4, 25), steps))]
        with made(link=LINK, traced="mlp-8x512, buckets of 1 MB") as results:
            results.csv("buckets.csv", ["position", "cap_mb", "step_ms_p25", "step_ms_p50", "step_ms_p75", "disturbed"], *rows)
            return captions.buckets(results.results)

    def test_buckets(self):
        head = "Over an emulated link of 10 Gbit/s and 20 us DDP's step of mlp-8x512 on 2 devices is shortest with buckets of"
        flat = "The curve is no U: not both ends lie above its lowest point with quartiles apart."
        self.assertEqual(self.buckets(12, 10, 11, 13), f"{head} 1 MB, 10.00 ms; with 0 MB it takes 20 % more; with 25 MB it takes 30 % more. The "
                         "curve is a U: both ends lie above its lowest point, with quartiles apart.")
        self.assertEqual(self.buckets(10.4, 10, 10.5, 13), f"{head} 1 MB, 10.00 ms (0 and 4 MB tie with it); with 0 MB it takes 4 % more; with 25 MB it takes 30 % more. {flat}")
        self.assertIn("no U", self.buckets(10.9, 10, 11, 13))  # quartiles overlap
        self.assertIn("is a U", self.buckets(11.1, 10, 11, 13))
        self.assertEqual(self.buckets(12, 10, 11, 8), f"{head} 25 MB, 8.00 ms; with 0 MB it takes 50 % more. {flat}")
        self.assertEqual(self.buckets(8, 10, 11, 12), f"{head} 0 MB, 8.00 ms; with 25 MB it takes 50 % more. {flat}")

    def test_disturbed_buckets(self):
        """A disturbed size is not the shortest; without both ends no sentence describes the curve."""
        self.assertIn("2 devices is, of the sizes that were not disturbed, shortest with buckets of 1 MB, 10.00 ms;", self.buckets(12, 10, 5, 13, lost=[4]))
        self.assertTrue(self.buckets(12, 10, 5, 13, lost=[4]).endswith("is a U: both ends lie above its lowest point, with quartiles apart (1 of 4 sizes disturbed)."))
        self.assertTrue(self.buckets(12, 10, 11, 13, lost=[25]).endswith("; with 0 MB it takes 20 % more. Whether the curve is a U is not known (1 of 4 sizes disturbed)."))
        self.assertIn("shortest with buckets of 1 MB, 10.00 ms; with 0 MB it takes 20 % more. Whether", self.buckets(12, 10, 11, 13, lost=[4, 25]))
        self.assertEqual(self.buckets(12, 10, 11, 13, lost=[0, 4, 25]), "Disturbed by other work; no conclusion.")

    def growth(self, ms, disturbed=0, ddp=None, moved=18e6):
        """DP's step on 2 and 4 devices, and DDP's if given: 80 and ms, 50 and ddp."""
        rows = [["dp", "mlp", 2, 80, 9e6, 0], ["dp", "mlp", 4, ms, moved, disturbed]]
        rows += [["ddp", "mlp", 2, 50, 9e6, 0], ["ddp", "mlp", 4, ddp, 27e6, 0]] if ddp else []
        with made() as results:  # at 1 Gbit/s, 9 MB more on DP's device 0 are 72 ms; 2.25 MB more on each of DDP's links are 18 ms
            results.csv("growth.csv", ["strategy", "model", "world_size", "step_ms_p50", "moved_bytes_per_step", "disturbed", "emulated_link"],
                        *([*row, "1 Gbit/s and 20 us"] for row in rows))
            return captions.growth(results.results)

    def test_growth(self):
        dp = ("Over an emulated link of 1 Gbit/s, DP's step of mlp takes 80.0 ms on 2 devices and 155.6 on 4: 75.6 ms more. Device 0 moves 9.00 MB "
              "more, one device after the other, which takes 72.0 ms: the step grows by 105 % of that, so the bytes predict it within 10 %.")
        self.assertEqual(self.growth(155.6), [dp])
        self.assertEqual(self.growth(155.6, ddp=67.1), [
            dp, "Over an emulated link of 1 Gbit/s, DDP's step of mlp takes 50.0 ms on 2 devices and 67.1 on 4: 17.1 ms more. Each rank's link "
            "carries 2.25 MB more, which takes 18.0 ms: the step grows by 95 % of that, so the bytes predict it within 10 %."])
        for ms, does in ((144.7, "do not predict"), (144.9, "predict"), (159.1, "predict"), (159.3, "do not predict")):  # 90 % and 110 % are 144.8 and 159.2
            self.assertTrue(self.growth(ms)[0].endswith(f"so the bytes {does} it within 10 %."))
        less = self.growth(155.6, ddp=41)[1]
        self.assertIn("41.0 on 4: 9.0 ms less.", less)
        self.assertTrue(less.endswith("which takes 18.0 ms: the step does not grow, so the bytes do not predict it within 10 %."))
        self.assertIn("80.0 on 4: 0.0 ms more. Device 0 moves 9.00 MB more, one device after the other, which takes 72.0 ms: the step does not grow, so", self.growth(80)[0])
        self.assertEqual(self.growth(155.6, moved=8e6), [])  # fewer bytes on more devices
        self.assertTrue(self.growth(155.6, ddp=70)[1].endswith("so the bytes do not predict it within 10 %."))
        self.assertEqual(self.growth(155.6, 1), ["How DP grows with the number of devices: disturbed."])

    def test_disturbed_overlap(self):
        """A run whose backward pass is much faster beside communication than alone counts as disturbed."""
        for beside, wanted in ((9.1, True), (8.9, False)):
            traced = {f"memory-{how}": {"backward": ms, "exposed": 1.0, "ready": [5.0, 9.0], "moving": [2.0, 2.0]}
                      for how, ms in (("serial", 10.0), ("overlapped", beside))}
            with made() as results:
                self.assertEqual([one is not None for _, one in captions.overlaps(results.results, traced)], [wanted])

    def test_overlap(self):
        found = {"all": 8.0, "can_hide": 5.0, "hidden": 4.5, "inflated": 2.0}
        fast = {"all": 0.977, "can_hide": 0.977, "hidden": 0.9447, "inflated": 2.0}  # of two digits each, 0.94 and 0.98 would make 96 %
        self.assertIn("overlap hides 0.945 of 0.977 ms of all-reduces, 97 %.", captions.overlap_sentences([("shared memory", fast)])[0])
        less = {**found, "hidden": 4.0}
        slow = "emulated link of 10 Gbit/s and 20 us"
        reached = " reached. The backward pass takes 2.00 times as long as without overlap."
        self.assertEqual(captions.overlap_sentences([("shared memory", found), (slow, less), (slow, None)]), [
            "Through shared memory overlap hides 4.50 of 8.00 ms of all-reduces, 56 %. At most 62 % could be hidden, and the aim, 90 % of "
            "that, is" + reached,
            f"Over an {slow} overlap hides 4.00 of 8.00 ms of all-reduces, 50 %. At most 62 % could be hidden, and the aim, 90 % of that, is "
            "not" + reached,
            f"Over an {slow}: disturbed by other work; no conclusion."])


class Causes(unittest.TestCase):
    rows = [  # one device computes 30 ms, so that 15 are one of two's: DP takes 18, DDP 16.5. DDP moves 6 MB in 3 ms.
        row("single", "mlp", 1, 31, forward=10, loss=1, backward=19, optimizer=1),
        row("dp", "mlp", 2, 21, data=0.1, scatter=0.2, replicate=0.3, forward=6, gather=0.4, loss=1, backward=11, reduce=0.5, optimizer=1.1,
            other=0.05),
        row("ddp", "mlp", 2, 19, data=0.15, forward=5.5, loss=1, backward=10, exposed=0.7, optimizer=1.2, other=0.25, communication_ms=3,
            moved_bytes_per_step=6e6)]
    traced = {"memory-overlapped": {"skew": 0.35}}

    def table(self, results):
        return ["|".join(one) for one in captions.cause_rows(results.results, self.traced, (100.0, 21.0))]

    def test_causes(self):
        with made([*self.rows, *ROWS[5:8]], models="mlp convnet", traced="mlp-8x512, buckets of 1 MB") as results:
            self.assertEqual(self.table(results), [
                "cause|measured (mlp, 2 devices)|here",
                "compute|forward, loss and backward: one device's, shared by 2|15.00 ms",
                "compute|the same under DP, and its ratio to one device's share|18.00 ms, 1.20",
                "compute|the same under DDP, and its ratio to one device's share|16.50 ms, 1.10",
                "exposed communication|DP: scatter, replicate, gather, reduce|1.40 ms",
                "exposed communication|DDP: all-reduce that backward did not hide, and waits for buffers|0.70 ms",
                "host|loading the batch, and time between phases: one device, DP, DDP|0.00, 0.15, 0.40 ms",
                "replicated work|the optimizer, which steps all weights on a device: one device, DP, DDP|1.00, 1.10, 1.20 ms",
                "memory bandwidth|bytes that all ranks of DDP move in a step, and their rate|6.00 MB, 2.0 GB/s",
                "memory bandwidth|a pass through memory by all cores (the probe)|21.0 GB/s",
                "imbalance|difference of two ranks' ends of backward (median; mlp-8x512, buckets of 1 MB)|0.35 ms"])

    def test_short_communication(self):
        fast = row("ddp", "mlp", 2, 19, forward=5.5, loss=1, backward=10, communication_ms=0.5, moved_bytes_per_step=6e6)
        for ddp, said in ((fast, "6.00 MB, 12.0 GB/s"), ([*fast[:13], 0, *fast[14:]], "-")):
            with made([*self.rows[:2], ddp]) as results:
                self.assertTrue(self.table(results)[8].endswith("|" + said))

    def test_disturbed(self):
        with made(self.rows[:2] + disturb(self.rows[2:])) as results:
            results.write("disturbed.txt", ["overlap-memory-overlapped"])
            self.assertEqual(self.table(results)[1:], ["all|this network's runs|disturbed",
                                                       "memory bandwidth|a pass through memory by all cores (the probe)|21.0 GB/s"])


if __name__ == "__main__":
    unittest.main()
