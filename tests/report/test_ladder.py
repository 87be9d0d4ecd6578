#!/usr/bin/env python3
"""The ladder: disturbed rounds are left out, and no sentence is printed where most were disturbed or a rung's rounds
differ too much; whether a rung takes as long as its trainer; the sentences, and the figure's bars."""

import json
import unittest

from made import Made
from report.ladder import Ladder, called

RUNGS = ("fresh threads", "kept threads", "flat gradients", "overlap")
GONE = "**through memory**: disturbed by other work; no conclusion."


def ladder(turns, *disturbed, weights="equal"):
    """turns: milliseconds of train_dp, train_ddp and all rungs but the first, which always takes 50."""
    with Made(networks="memory 10gbe", turns=len(turns), **{"weights-0-train_ddp": weights}) as made:
        for i, (dp, ddp, *ms) in enumerate(turns):
            for program, step in (("train_dp", dp), ("train_ddp", ddp)):
                made.write(f"runs/{program}-0-{i + 1}/summary.json", [json.dumps({"step_ms_p50": step})])
            made.csv(f"runs/ladder-0-{i + 1}/rounds.csv", ["weights", "rung", "says", "devices", "link", "round", "ms"],
                     *(["equal", rung, "words", "threads", "memory", turn, one] for rung, one in zip(RUNGS, (50, *ms)) for turn in (1, 2)))
        made.write("disturbed.txt", disturbed)
        return Ladder(made.results, 0)


def row(one, name):
    """A rung's median step, its saving, the number of counted rounds, and whether it was disturbed."""
    rung = next(rung for rung in one.rungs if rung.name == name)
    return (rung.ms[1], rung.saved and rung.saved[1], rung.rounds, rung.disturbed)


class Ladders(unittest.TestCase):
    def test_one_turn_was_disturbed(self):
        one = ladder([(40, 20, 40, 30, 20), (40, 20, 40, 31, 20), (40, 20, 40, 30, 20.4), (10, 20, 80, 60, 90)], "ladder-0-4",
                     weights="DIFFER")
        self.assertEqual(row(one, "fresh threads"), (50, None, 6, False))
        self.assertEqual(row(one, "kept threads"), (40, 10, 6, False))
        self.assertEqual(row(one, "flat gradients"), (30, 10, 6, False))
        self.assertEqual(one.rounds_sentence(), "6 of 8 rounds count; the others were disturbed.")
        self.assertEqual(one.trainer_sentence("train_dp"), "kept threads takes 1.000 times train_dp's step, within 5 %: yes; weights equal")
        self.assertEqual(one.trainer_sentence("train_ddp"), "overlap takes 1.000 times train_ddp's step, within 5 %: yes; weights DIFFER")
        self.assertEqual(one.sentence(), "**through memory**: DataParallel takes 40.0 ms a step (50.0 with fresh threads), "
                         "DistributedDataParallel 20.0. In ms, where a rung changes more than 2 % of DP's step: saved by flat gradients 10.0, "
                         "overlap 10.0; added by no rung.")
        self.assertEqual([bar[:4] + bar[5:] for bar in one.bars()], [
            [1, "fresh threads", "0.000000", "50.000000", "first"], [2, "kept threads", "40.000000", "50.000000", "saves"],
            [3, "flat gradients", "30.000000", "40.000000", "saves"], [4, "overlap", "20.000000", "30.000000", "saves"],
            [5, "DDP", "0.000000", "20.000000", "last"]])
        self.assertEqual(called("10gbe"), "10gbe, emulated")

    def test_what_adds(self):
        one = ladder([(40, 20, 40, 45, 20)] * 2)
        self.assertTrue(one.sentence().endswith("of DP's step: saved by overlap 25.0; added by flat gradients 5.0."))
        edge = ladder([(40, 20, 40, 39.2, 39.2 - 0.81)] * 2)  # a fiftieth is 0.8
        self.assertTrue(edge.sentence().endswith("of DP's step: saved by overlap 0.8; added by no rung."))
        small = ladder([(40, 20, 40, 39.3, 40)] * 2)
        self.assertTrue(small.sentence().endswith("of DP's step: saved by no rung; added by no rung."))
        self.assertEqual(one.bars()[2][1:], ["flat gradients", "40.000000", "45.000000", "-5.000000", "takes"])

    def test_medians(self):
        """Sentences name median steps, not quartiles."""
        one = ladder([(40, 20, kept, 30, last) for kept, last in ((40, 20), (40, 20), (41, 22))])
        self.assertIn("DataParallel takes 40.0 ms a step (50.0 with fresh threads), DistributedDataParallel 20.0.", one.sentence())
        one = ladder([(40, 20, 40, 30, last) for last in (20, 21, 23, 24)])  # of a rung that saves 10, 9, 7 and 6
        self.assertEqual(one.table()[4], ["overlap", "words", "22.000", "+8.000", "+6.750 to +9.250", "equal"])

    def test_beside_trainers(self):
        """A turn is compared with its trainer only if neither was disturbed; 1.06 and 0.94 are outside the limits."""
        turns = [(40, 20, 42.4, 30, 18.8)] * 4
        one = ladder(turns, "train_dp-0-1")
        self.assertEqual(one.trainer_sentence("train_dp"), "kept threads takes 1.060 times train_dp's step, within 5 %: no; weights equal")
        self.assertEqual(one.trainer_sentence("train_ddp"), "overlap takes 0.940 times train_ddp's step, within 5 %: no; weights equal")
        self.assertEqual(one.rounds_sentence(), "All 8 rounds count.")
        one = ladder(turns, "train_dp-0-1", "train_dp-0-2", "ladder-0-3")
        self.assertEqual(one.trainer_sentence("train_dp"), "kept threads beside train_dp: disturbed, within 5 %: unknown; weights equal")

    def test_rounds_apart(self):
        """A rung whose rounds differ too much is disturbed, and so is the next rung's saving over it."""
        one = ladder([(40, 20, 40, flat, 20) for flat in (25, 40, 30, 30)])
        self.assertEqual(row(one, "flat gradients"), (30, 10, 8, False))
        one = ladder([(40, 20, 40, flat, 20) for flat in (25, 40, 45, 30)])
        self.assertEqual(row(one, "flat gradients"), (35, 5, 8, True))
        self.assertEqual(row(one, "overlap"), (20, 15, 8, True))
        self.assertEqual(one.sentence(), GONE)
        self.assertEqual([bar[-1] for bar in one.bars()[2:]], ["disturbed"] * 3)

    def test_half_was_disturbed(self):
        """The rounds of the other half count."""
        one = ladder([(40, 20, 40, 30, 20)] * 2 + [(40, 20, 80, 60, 40)] * 2, "ladder-0-3", "ladder-0-4")
        self.assertEqual(row(one, "flat gradients"), (30, 10, 4, False))
        self.assertEqual(one.rounds_sentence(), "4 of 8 rounds count; the others were disturbed.")

    def test_most_was_disturbed(self):
        one = ladder([(40, 20, 40, 30, 20)] * 4, *(f"ladder-0-{turn}" for turn in (1, 2, 4)))
        self.assertEqual(row(one, "flat gradients"), (30, 10, 8, True))
        self.assertEqual(one.rounds_sentence(), "6 of 8 rounds were disturbed: no conclusion.")
        self.assertEqual(one.sentence(), GONE)
        self.assertEqual(sum("disturbed equal" in line for line in one.lines().splitlines()), 4)
        self.assertEqual([line[3] for line in one.table()[1:]], ["disturbed"] * 4)


if __name__ == "__main__":
    unittest.main()
