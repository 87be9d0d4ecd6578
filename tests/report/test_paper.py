#!/usr/bin/env python3
"""The paper's figures: shares of a step, medians, the effect of disturbed runs on them and on the sentences, and a
figure's lines."""

import unittest

from made import Made
from report import paper


def rows(text):
    with Made() as made:
        made.write("rows.csv", text.split())
        return made.results.rows("rows.csv")


# 2 + 4 + 3 + 1 + 0 = 10, of which 8 remain with overlap (2 of 3 hidden); the same 10 % slower. A run that was disturbed twice, and one
# that was disturbed once, of which the other round counts.
BREAKDOWN = """model,link,round,disturbed,forward_ms,backward_ms,communication_ms,optimizer_ms,rest_ms,overlapped_ms
mlp,paper-rdma,1,0,2,4,3,1,0,7
mlp,paper-rdma,2,1,4,8,6,2,0,20
mlp,10gbe,1,0,2,4,3,1,0,8
mlp,10gbe,2,0,2.2,4.4,3.3,1.1,0,8.8
convnet,10gbe,1,1,2,4,3,1,0,8
convnet,10gbe,2,1,2,4,3,1,0,8"""
BUCKETS = """model,link,bucket_mb,round,disturbed,seconds
mlp,10gbe,0,1,0,4
mlp,10gbe,0,2,0,4
mlp,10gbe,1,1,0,1.5
mlp,10gbe,1,2,1,9
mlp,10gbe,25,1,0,2
mlp,paper-rdma,25,1,0,1
mlp,paper-rdma,25,2,0,2
convnet,10gbe,25,1,1,7"""
SKIP = """model,link,every,round,disturbed,seconds
mlp,10gbe,1,1,0,4
mlp,10gbe,8,1,0,3
convnet,10gbe,1,1,1,4
convnet,10gbe,8,1,0,1"""


class Runs(unittest.TestCase):
    """One row for each run, from step 3 on; a disturbed run is marked."""

    def made(self):
        made = Made(models="mlp", links="10gbe", rounds=2)
        for turn in (1, 2):
            for run in [f"serial-mlp-10gbe-{turn}", f"overlapped-mlp-10gbe-{turn}", *(f"skip-mlp-10gbe-{every}-{turn}" for every in paper.EVERY)]:
                made.csv(f"runs/{run}/steps.csv", ["step", "step_ms", "forward_ms", "loss_ms", "backward_ms", "exposed_ms", "replicate_ms",
                                                   "optimizer_ms"], [2, 99, 9, 9, 9, 9, 9, 9], [3, 10 * turn, 1, 1, 4, 2, 1, 1],
                         [4, 20, 2, 0, 8, 3, 1, 1], [5, 20, 2, 2, 8, 1, 3, 2])
        return made.write("disturbed.txt", ["overlapped-mlp-10gbe-1", "skip-mlp-10gbe-8-2"])

    def test_seconds(self):
        with self.made() as made:
            found = paper.seconds_rows(made.results, "skip", paper.EVERY)
        self.assertEqual(found[0], ["mlp", "10gbe (emulated)", 1, 1, 0, "0.02"])
        self.assertEqual(found[-1], ["mlp", "10gbe (emulated)", 8, 2, 1, "0.0025"])

    def test_parts(self):
        """The middle half of 10, 20, 20 begins at 15; that of 20, 20, 20 is 20."""
        with self.made() as made:
            first, second = paper.breakdown_rows(made.results)
        self.assertEqual(first[2:], [1, 1, "3.00000", "8.00000", "4.00000", "1.50000", "3.50000", "20.00000"])
        self.assertEqual(second[2:5], [2, 0, f"{8 / 3:.5f}"])

    def test_convergence(self):
        with Made(models="mlp") as made:
            for batch in paper.BATCHES:
                for every in paper.EVERY:
                    made.csv(f"runs/converge-mlp-{batch}-{every}/steps.csv", ["step", "loss"], *([step, int(step < 40 // every)] for step in range(60 // every)))
            found = paper.convergence_rows(made.results)
        self.assertEqual(found[:2], [["mlp", 8, 1, 40, "1.00000"], ["mlp", 8, 1, 80, "0.00000"]])
        self.assertEqual(found[-1], ["mlp", 256, 8, 80, "0.00000"])


class Paper(unittest.TestCase):
    def test_breakdown(self):
        table = paper.breakdown_table(rows(BREAKDOWN))
        self.assertEqual(table[2], ["mlp 10gbe (emulated)", "0.200", "0.400", "0.300", "0.100", "0.000", "0.800", "0.667"])
        self.assertIn(["ResNet50 NCCL (paper)", "0.150", "0.390", "0.440", "0.020", "0.000", "0.620", "0.974"], table)
        self.assertEqual((table[3][0], table[3][7]), ("convnet 10gbe (emulated)", "disturbed"))
        self.assertEqual(paper.breakdown_sentence(table), "Over emulated links overlap shortens the step by 30 % for mlp paper-rdma and 20 % for "
                         "mlp 10gbe (in the paper 21.5 to 38.0 %).")
        slower = [row[:6] + ["1.033", row[7]] if row[0].startswith("mlp paper") else row for row in table]
        self.assertIn(" shortens the step by -3 % (it takes longer) for mlp paper-rdma and 20 % for mlp 10gbe", paper.breakdown_sentence(slower))
        self.assertEqual(paper.breakdown_sentence([row for row in table if "mlp" not in row[0]]), paper.NOTHING)

    def test_no_communication(self):
        """Without communication, the hidden share is 0."""
        table = paper.breakdown_table(rows(BREAKDOWN.splitlines()[0] + "\nmlp,none,1,0,2,4,0,1,1,8"))
        self.assertEqual(table[1], ["mlp none (emulated)", "0.250", "0.500", "0.000", "0.125", "0.125", "1.000", "0.000"])

    def test_plots(self):
        """Bars by row; for a figure of lines the labels, and the values at each rank count."""
        with Made(models="mlp convnet", hidden="1024,1024") as made:
            made.write("plots/none", [])
            made.write("convergence.csv", ["model,batch,every,iteration,loss", "mlp,8,4,40,2"])
            found = {"buckets": paper.medians(rows(BUCKETS)), "worlds": [], "skip": []}
            paper.write_plots(made.results, found, paper.breakdown_table(rows(BREAKDOWN)))
            bars, settings = made.results.rows("plots/paper-breakdown.csv"), made.results.lines("plots/paper-runs.gp")
            points, theirs = made.results.rows("plots/paper-convergence.csv"), [one for one in made.results.rows("plots/paper-buckets.csv") if one["panel"] == "paper"]
        self.assertEqual([(one["row"], one["run"], one["overlapped"], one["disturbed"]) for one in bars[:3]],
                         [("1", "mlp paper-rdma (emulated)", "0.700", "0"), ("2", "mlp 10gbe (emulated)", "0.800", "0"), ("3", "convnet 10gbe (emulated)", "0.800", "1")])
        self.assertEqual(settings[:3], ["models = 'mlp-1024 convnet paper'", "buckets_here = \"'mlp 10gbe' 'mlp paper-rdma' 'convnet 10gbe'\"",
                                        'buckets_here_x = "0 1 25"'])
        kept = paper.read_csv(paper.PAPER / "figure7.csv")
        self.assertEqual([(one["run"], one["x"], one["y"], one["disturbed"]) for one in theirs],
                         [(one["run"], one["bucket_mb"], str(one.number("seconds")), "0") for one in kept])
        self.assertEqual((len(settings), [points[0][name] for name in ("panel", "run", "x", "y")]), (13, ["mlp-1024 8", "every 4", "40", "2.0"]))

    def test_buckets(self):
        found = paper.medians(rows(BUCKETS))
        self.assertEqual(found, [("mlp 10gbe", "0", 4, False), ("mlp 10gbe", "1", 1.5, False), ("mlp 10gbe", "25", 2, False),
                                 ("mlp paper-rdma", "25", 1.5, True), ("convnet 10gbe", "25", 7, True)])
        self.assertEqual(["|".join(row) for row in paper.median_table(found, "link")],
                         ["link|0|1|25", "mlp 10gbe|4.00000|1.50000|2.00000", "mlp paper-rdma|||disturbed", "convnet 10gbe|||disturbed"])
        self.assertEqual(paper.buckets_sentence(found), "Over emulated links the fastest bucket is 1 MB for mlp 10gbe (a bucket per gradient takes "
                         "167 % more); in the paper 25 and 50 MB with NCCL, 5 MB with Gloo.")
        for caps, said in ((("0", 1.0), "0 MB for run;"), (("4", 2.0), "4 MB for run;")):  # gradients without a bucket are not mentioned
            self.assertIn(f"is {said} in the paper", paper.buckets_sentence([("run", *caps, False), ("run", "25", 3.0, False)]))

    def test_names(self):
        """The tables name the mlp by its hidden layers; without that fact, and other networks, by the model's name."""
        for facts, name in ((dict(hidden="1024,1024"), "mlp-1024 10gbe"), ({}, "mlp 10gbe")):
            with Made(**facts) as made:
                made.write("buckets.csv", BUCKETS.splitlines())
                names = [run for run, *_ in paper.medians(made.results.named("buckets.csv"))]
                self.assertEqual((names[0], names[-1]), (name, "convnet 10gbe"))

    def test_skip_and_worlds(self):
        found = paper.medians(rows(SKIP))
        self.assertEqual(paper.skip_sentence(found).split(";")[0],
                         "Synchronising every 8th iteration over emulated links saves 25 % for mlp 10gbe")
        self.assertTrue(paper.worlds_sentence(found).startswith(
            "With 8 ranks over emulated links an iteration takes, compared with one rank, 0.75 times as long for mlp 10gbe; in the paper"))
        self.assertIn(" saves -25 % (it takes longer) for mlp 10gbe", paper.skip_sentence(paper.medians(rows(SKIP.replace("8,1,0,3", "8,1,0,5")))))
        lost = paper.medians(rows(SKIP.replace(",0,", ",1,")))
        for sentence in (paper.skip_sentence, paper.worlds_sentence, paper.buckets_sentence):
            self.assertEqual(sentence(lost), paper.NOTHING)

    def test_convergence(self):
        table = paper.convergence_table(rows("""model,batch,every,iteration,loss
            mlp,256,1,40,2 mlp,256,1,80,1 mlp,256,4,40,2 mlp,256,4,80,1.05 mlp,256,8,40,2 mlp,256,8,80,0.9"""))
        self.assertEqual(paper.convergence_sentence(table), "The final loss with skipped synchronisations is at most +0.050 "
                         "(mlp, batch 256) above the final loss without; in the paper +0.02 (batch 256).")
        both = [*table, ["mlp", "8", "1", "", "", "+0.000", "+0.00"], ["mlp", "8", "4", "", "", "+0.300", "+0.01"], ["mlp", "8", "8", "", "", "+0.400", "+0.02"]]
        self.assertTrue(paper.convergence_sentence(both).endswith("+0.050 (mlp, batch 256) and +0.400 (mlp, batch 8) above the final loss without; "
                                                                  "in the paper +0.02 (batch 256) and +0.02 (batch 8)."))
        table[-1][6] = "+0.03"  # the paper's largest, too
        self.assertTrue(paper.convergence_sentence(table).endswith("in the paper +0.03 (batch 256)."))

    def test_lines(self):
        """x positions are rank counts; two labels that would overlap at 10 are moved apart by the minimum, the third
        stays."""
        points = [("here", *one, False) for one in (("a", 0, 1), ("a", 25, 10), ("b", 0, 1), ("b", 1, 2), ("b", 25, 10), ("c", 25, 4))]
        self.assertEqual([(row[5], row[7] if row[6] else row[3]) for row in paper.lines(points, True, 0.1)],
                         [(1, 1), (3, "9.5"), (1, 1), (2, 2), (3, "10.5"), (3, "4")])


if __name__ == "__main__":
    unittest.main()
