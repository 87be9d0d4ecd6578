#!/usr/bin/env python3
"""The reader's wrapper (compare.sh --mine): faster, slower, a tie, disturbed, failed, other numbers of devices; and
no sentence without it."""

import unittest

from made import Made, row
from report import answer, captions, mine, tables

MINE = {"models": "mlp", "timed": "2", "cores": 2, "kind": "cpu", "mine": "my ddp.c", "mine_symbol": "own_ddp", "mine_like": "ddp"}


class Yours(unittest.TestCase):
    def said(self, ddp, own, facts=(), like="ddp", **own_facts):
        """The headline and the first line about the step of DDP, or of DP, beside the reader's wrapper: (step,
        phases)."""
        with Made(**{**MINE, "mine_like": like, "mine_comparisons": 9, "mine_broken": 0, **dict(facts)}) as made:
            made.summary(row("single", "mlp", 1, 20, forward=6, backward=12, optimizer=2), row("dp", "mlp", 2, 14, reduce=2, backward=12),
                         row("ddp", "mlp", 2, ddp[0], **ddp[1]), row("mine", "mlp", 2, own[0], **own[1], **own_facts))
            return mine.headline(made.results), mine.lines(made.results)[0]

    def test_slower(self):
        headline, line = self.said((10, {"backward": 10}), (15, {"backward": 10.5, "exposed": 4.5}))
        self.assertEqual(headline, "Yours (my ddp.c) with mlp on 2 devices: its step is 50 % longer than DDP's through memory, because it waits for gradients "
                         "after the backward pass (+4.50 ms of exposed). Its numbers are train_ddp's in all 9 comparisons.")
        self.assertIn("yours takes 5.00 ms more than DDP's 10.00 per step (50.0 %): exposed +4.50, backward +0.50", line)

    def test_faster(self):
        headline, line = self.said((15, {"backward": 10.5, "exposed": 4.5}), (10, {"backward": 10}))
        self.assertIn("its step is 33 % shorter than DDP's through memory. Its", headline)
        self.assertIn("yours saves 5.00 ms of DDP's 15.00 per step (33.3 %): exposed -4.50", line)

    def test_no_phase_explains_it(self):
        headline, _ = self.said((10, {"forward": 5, "backward": 5}), (15, {"forward": 7.4, "backward": 7.6}))
        self.assertIn("its step is 50 % longer than DDP's through memory. Its", headline)
        headline, _ = self.said((10, {"backward": 10}), (15, {"forward": 1.25, "backward": 11.25, "exposed": 2.5}))  # half of it
        self.assertIn("its step is 50 % longer than DDP's through memory. Its", headline)

    def test_tie(self):
        headline, line = self.said((10, {"backward": 10}), (10.1, {"backward": 10.1}))
        self.assertIn(": DDP and yours tie through memory. Its", headline)
        self.assertIn("DDP and yours tie: their steps take 10.00 and 10.10 ms", line)
        self.assertIn("Per phase, yours minus DDP, in ms: ", line)

    def test_disturbed(self):
        headline, line = self.said((10, {"backward": 10}), (15, {"backward": 15}), disturbed=1)
        self.assertIn("disturbed by other work through memory: no conclusion. Its", headline)
        self.assertIn("disturbed by other work; no conclusion.", line)

    def test_of_dp(self):
        headline, line = self.said((10, {"backward": 10}), (20, {"backward": 10, "reduce": 10}), like="dp")
        self.assertIn("its step is 43 % longer than DP's through memory, because it sums gradients longer (+8.00 ms of reduce). Its numbers are train_dp's",
                      headline)
        self.assertIn("more than DP's 14.00", line)

    def test_sharded(self):
        with Made(**{**MINE, "mine_like": "fsdp", "mine_symbol": "own_fsdp", "mine_comparisons": 9, "mine_broken": 0}) as made:
            made.summary(row("dp", "mlp", 2, 14, backward=14), row("ddp", "mlp", 2, 10, backward=10), row("fsdp", "mlp", 2, 12, backward=10, exposed=2),
                         row("mine", "mlp", 2, 16, backward=10, exposed=6))
            self.assertIn("its step is 33 % longer than FSDP's through memory, because it waits for weights and gradients longer (+4.00 ms of exposed). Its "
                          "numbers are train_fsdp's", mine.headline(made.results))
            self.assertIn("yours takes 4.00 ms more than FSDP's 12.00 per step", mine.lines(made.results)[0])

    def test_bits(self):
        headline, _ = self.said((10, {"backward": 10}), (10, {"backward": 10}), {"mine_broken": 2})
        self.assertTrue(headline.endswith("Its numbers are NOT train_ddp's in 2 of 9 comparisons."), headline)
        headline, _ = self.said((10, {"backward": 10}), (10, {"backward": 10}), {"mine_comparisons": 0})
        self.assertTrue(headline.endswith("It was not compared with train_ddp's numbers."), headline)

    def test_over_the_link(self):
        with Made(**MINE, mine_comparisons=9, link="an emulated link of 10 Gbit/s and 20 us") as made:
            here = [row("ddp", "mlp", 2, 10, backward=10), row("mine", "mlp", 2, 10, backward=10)]
            made.summary(row("dp", "mlp", 2, 14, backward=14), *here)
            made.summary(row("dp", "mlp", 2, 24, backward=24), here[0], row("mine", "mlp", 2, 30, backward=10, exposed=20), part="-link")
            self.assertIn("DDP and yours tie through memory; its step is 200 % longer than DDP's over 10 Gbit/s, because it waits", mine.headline(made.results))

    def test_a_run_that_failed(self):
        with Made(**MINE, mine_comparisons=9, mine_broken=3) as made:
            made.summary(row("dp", "mlp", 2, 14, backward=14), row("ddp", "mlp", 2, 10, backward=10))
            made.csv("failed.csv", ["part", "model", "world_size", "why"], ["speed", "mlp", 2, '"rank 1, in a wait, ended"'])
            self.assertEqual(mine.headline(made.results), "Yours (my ddp.c): its speed is not known. Its numbers are NOT train_ddp's in 3 of 9 comparisons.")
            self.assertEqual(mine.lines(made.results), ["Yours failed: a timed run of mlp on 2 devices: rank 1, in a wait, ended. It has no row there."])

    def test_tables_and_captions(self):
        with Made(**MINE) as made:
            made.summary(row("single", "mlp", 1, 20, forward=6), row("dp", "mlp", 2, 14, backward=14, reduce=7), row("ddp", "mlp", 2, 10, backward=10),
                         row("mine", "mlp", 2, 8, backward=6, exposed=2, communication=3))
            results = made.results
            self.assertEqual([one[1] for one in tables.speed(results)], ["strategy", "single", "dp", "ddp", "yours"])
            self.assertIn("of the drawn lines the fastest is yours on 2 devices", captions.throughput(results))
            self.assertIn("0.0 % of DDP's, 25.0 % of yours", captions.phases(results))
            self.assertIn("2.00 MB under DDP, 2.00 MB under yours", captions.memory(results))
            made.csv("equivalence.csv", ["model", "a", "b", "required", "what", "max_ulp", "held"], ["mlp", "ddp:2", "mine:2", "bitwise", "weight", 3, 0],
                     ["mlp", "dp:2", "ddp:2", "bitwise", "weight", 0, 1], ["mlp", "ddp:4", "mine:4", "bitwise", "weight", 0, 1],
                     ["mlp", "dp:4", "ddp:4", "bitwise", "weight", 3, 0])
            self.assertEqual([one[2] for one in tables.equivalence(results)], ["b", "yours:2", "ddp:2", "yours:4", "ddp:4"])
            self.assertEqual(mine.not_the_same(results), "Yours differs: mlp on 2.")

    def test_without_it(self):
        with Made(models="mlp", timed="2") as made:
            made.summary(row("dp", "mlp", 2, 14, backward=14), row("ddp", "mlp", 2, 10, backward=10))
            self.assertEqual((mine.headline(made.results), mine.lines(made.results)), ("", []))
            self.assertEqual(answer.pairs(made.results.rows("difference-mine.csv")), [])


if __name__ == "__main__":
    unittest.main()
