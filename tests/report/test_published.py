#!/usr/bin/env python3
"""The model beside published steps: errors of fitted and held-out points, the effect of a cost per call, and limits
of one world size."""

import unittest

from made import Made
from report import published

NUMBERS = "run,figure,cost,gbit,latency_us,call_us,slowdown,largest_error,at_its_limit".split(",")
POINTS = "run,figure,cost,gpus,bucket_mb,paper_s,fitted_s,held_out_s".split(",")


def fits(*held_out, sweep=(0.1, 0.1)):
    """Two fits of figure 9, whose second point is predicted, and two of figure 7, whose points are fitted."""
    with Made() as made:
        made.csv("fitted.csv", NUMBERS, *[["A", "9", cost, 10, 20, call, 1.5, 0.1, limit] for cost, call, limit in
                                          (("message", 0, ""), ("both", 300, "gbit"))],
                 *[["A", "7", cost, 10, 20, 0, 1.5, 0.1, ""] for cost in ("message", "call")])
        made.csv("published.csv", POINTS,
                 *[["A", "9", cost, gpus, -1, 0.2, fitted, held] for cost, held in zip(("message", "both"), held_out)
                   for gpus, fitted, held in ((2, 0.21, 0.2), (4, 0.18, held))],
                 *[["A", "7", cost, 16, 25, 0.1, fitted, 0.2] for cost, fitted in zip(("message", "call"), sweep)])
        return published.fits(made.results)


class Profiles(unittest.TestCase):
    def test_networks(self):
        """Parameters and tensors of PyTorch's resnet50 and BERT-large; multiplications for a picture of 224 by 224."""
        resnet50, bert = published.resnet50(), published.bert()
        self.assertEqual([(len(one), sum(count for count, _ in one)) for one in (resnet50, bert)], [(161, 25557032), (391, 335141888)])
        self.assertEqual(sum(work for _, work in resnet50), 4089184256)
        self.assertEqual(sum(work for _, work in bert), 24 * 12 * 1024 ** 2 + 1024 ** 2)

    def test_profile(self):
        """Ten seconds in the ratio 1 : 3 : 1; the time at which a gradient is ready follows from the work of the
        layers from the last one on."""
        made = published.profile("a", [(100, 30), (7, 0), (10, 10)], 10, (0.1, 0.3, 0.1))
        self.assertEqual([round(ms, 9) for ms in (made["forward_s"][0], made["backward_s"][0], made["optimizer_s"])], [2, 6, 2])
        self.assertEqual(made["tensors"], [{"bytes": 40, "ready": 0.25}, {"bytes": 28, "ready": 0.25}, {"bytes": 400, "ready": 1}])

    def test_runs(self):
        """Figure 6's shares; the paper's file has the others."""
        for row in published.read_csv(published.PAPER / "figure6.csv"):
            self.assertEqual(published.RUNS[row["run"]][1:], tuple(row.number(part) for part in ("forward", "backward", "optimizer")))


class Published(unittest.TestCase):
    def test_errors(self):
        fit = fits(0.14, 0.14)[0]
        self.assertEqual(published.fit_sentence(fit), "A, figure 9: fitted, 2 of 2 points are within 15 % (largest error 10 %); held out, "
                         "1 is (largest error, 4 GPUs: 30 %).")
        self.assertEqual(published.place(fits(1, 1)[2].points[0]), "buckets of 25 MB")

    def test_numbers(self):
        rows = published.fitted_table(fits(0.2, 0.2))
        self.assertEqual(rows[1:3], [["A", "9", "per message", "10.0", "20", "0", "1.50", "-"], ["A", "9", "both", "10.0", "20", "300", "1.50", "gbit"]])
        self.assertEqual({len(row) for row in rows}, {8})

    def test_call(self):
        for held, better, worse in ((0.19, "1 run", 0), (0.139, "0 runs", 0), (0.1, "0 runs", 1)):
            self.assertEqual(published.call_sentence(fits(0.14, held)[:2]), f"With a cost per call as well, the largest held-out error of figure "
                             f"9 falls by more than one percentage point in {better} and rises in {worse}: A 30.0 -> {100 * (1 - held / 0.2):.1f} %.")

    def test_sweep(self):
        said = "In figure 7 (16 GPUs) the two costs fit {} equally well, within one percentage point{}. The second table has their predictions for 32."
        self.assertEqual(published.sweep_sentence(fits(1, 1)[2:]), said.format("all runs", ": one number of GPUs does not distinguish them"))
        self.assertEqual(published.sweep_sentence(fits(1, 1, sweep=(0.1, 0.12))[2:]), said.format("no run", ""))

    def test_bold(self):
        found = fits(0.14, 0.2)
        with Made() as made:
            made.csv("predicted.csv", ["run", "gpus", "bucket_mb", "cost", "seconds"], ["A", 32, 25, "message", 0.2], ["A", 32, 1, "message", 0.4],
                     ["A", 32, 25, "call", 0.3], ["A", 32, 1, "call", 0.5])
            predicted = made.results.rows("predicted.csv")
        rows, ahead = published.tables(found, predicted)
        self.assertEqual(rows[2], ["A", "9", "4", "", "0.2", "per message", "0.180", "-10.0", "0.140", "**-30.0**"])
        self.assertEqual(rows[5][1:4], ["7", "16", "25"])
        self.assertEqual(ahead, [["run", "MB", "per message, s", "per call, s"], ["A", "25", "0.200", "0.300"], ["A", "1", "0.400", "0.500"]])


unittest.main()
