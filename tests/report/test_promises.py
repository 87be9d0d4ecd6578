#!/usr/bin/env python3
"""What promises cost: differences within a round; the parts of a step add up to it; threads, batches; and what was disturbed."""

import unittest

from made import Made
from report import promises

PRICES = """set,name,round,disturbed,ms
mlp,plain,1,0,10
mlp,noop,1,0,9
mlp,plain,2,0,12
mlp,noop,2,0,11.5
mlp,plain,3,0,10
mlp,noop,3,1,3
limit,whole,1,0,14
limit,whole-optimizer,1,0,2
limit,half,1,0,8
limit,half-optimizer,1,0,2
limit,pair-0,1,0,8.25
limit,pair-1,1,0,8.5
limit,whole,2,0,14
limit,whole-optimizer,2,0,2
limit,half,2,0,8
limit,half-optimizer,2,0,2
limit,pair-0,2,0,8.5
limit,pair-1,2,0,8.25
limit,whole,3,1,1
limit,half,3,1,1
limit,pair-0,3,1,1
limit,pair-1,3,1,1
threads,1x2,1,0,8
threads,2x1,1,0,7
threads,2x4,1,0,28
threads,1x2,2,0,8
threads,2x1,2,0,7
threads,2x4,2,0,28
threads,1x2,3,1,1
threads,2x1,3,1,1
threads,2x4,3,1,1
batch-8,single,1,0,2
batch-8,dp,1,0,4
batch-8,ddp,1,0,3
batch-32,single,1,0,9
batch-32,dp,1,0,6
batch-32,ddp,1,0,5
batch-128,single,1,0,40
batch-128,dp,1,1,25
batch-128,ddp,1,0,20"""
BATCHES = [line for line in PRICES.splitlines() if line.startswith("batch-")]


def lines():
    """The prices, in round 3 of which noop was disturbed; the batches are the same in the other rounds."""
    return PRICES.splitlines() + [line.replace(",1,", f",{turn},", 1) for turn in (2, 3) for line in BATCHES]


def prices(found=None):
    with Made() as made:
        made.write("prices.csv", found or lines())
        return promises.Prices(made.results.rows("prices.csv"))


class Promises(unittest.TestCase):
    def test_price(self):
        name, ms, (low, price, high), ratio, lost = prices().price("mlp")[-1]
        self.assertEqual((name, ms, low, price, high, round(ratio, 4), lost), ("noop", 10.25, -0.875, -0.75, -0.625, 0.9292, False))

    def test_limits(self):
        of, lost = prices().limits()
        self.assertEqual([of[name][1] for name in promises.PARTS[:7]], [7, 1, 0, 0.5, 1.75, 0.75, 11])
        self.assertFalse(lost)
        self.assertEqual(promises.limit_sentence(prices()), "DDP(2) takes 11.00 ms, 1.077 times the same without communication (at most 1.06 is "
                         "aimed at), and is 1.28 times as fast as one device. What is missing to 2: the optimizer, which every rank runs whole, "
                         "+1.00 ms; products of half the batch +0.00; two devices on one memory +0.50; what DDP does besides +1.75; communication "
                         "+0.75.")

    def test_threads(self):
        table = promises.thread_table(prices(), 2)
        self.assertEqual([row[5] for row in table[1:]], ["1.00", "1.75", "2.00", "0.50"])
        self.assertEqual([row[2] for row in table[1:]], ["0.5", "1.0", "1.0", "4.0"])
        self.assertEqual(promises.thread_sentence(table, 2),
                         "Of these ranks x threads on 2 cores, 2 x 1 (worth 2.00) is the fastest and 2 x 4 (worth 0.50) the slowest.")
        self.assertEqual(promises.thread_sentence(table[:2], 2), promises.NOTHING)

    def test_batches(self):
        table = promises.batch_table(prices())
        self.assertEqual([row[-1] for row in table[1:]], ["one device", "DDP", "disturbed"])
        self.assertEqual(promises.batch_sentence(table), "One device is the fastest at 1 of 2 batches, DP at 0, DDP at 1; from 32 rows on it is "
                         "DDP.")
        self.assertEqual(promises.batch_sentence(table[:2]), "One device is the fastest at 1 of 1 batches, DP at 0, DDP at 0.")
        self.assertEqual(promises.batch_sentence([table[0], table[3]]), promises.NOTHING)

    def test_dearest(self):
        self.assertEqual(promises.promise_sentence(promises.bars(prices(), {"mlp": "mlp-1024"})),
                         "The dearest is mlp-1024: noop with -0.75 ms per step, the cheapest mlp-1024: noop with -0.75 ms.")

    def test_disturbed(self):
        """Prices of which more than half of the rounds do not count; or whose times lie far apart."""
        for old, new in (("mlp,noop,2,0", "mlp,noop,2,1"), ("mlp,plain,2,0,12", "mlp,plain,2,0,22")):
            found = prices([line.replace(old, new) for line in lines()])
            self.assertTrue(found.price("mlp")[-1][-1])
            self.assertEqual(promises.promise_table(found, [], "mlp")[-1][2], "disturbed")
            self.assertEqual(promises.promise_sentence(promises.bars(found, {"mlp": "mlp-1024"})), promises.NOTHING)
            self.assertEqual(promises.limit_sentence(found), promises.NOTHING)

    def test_counts(self):
        with Made() as made:
            made.csv("counts.csv", "model,promise,messages,bytes,formula_messages,formula_bytes,held".split(","), ["mlp", "plain", 2, 10, 2, 10, 1],
                     ["mlp", "noop", 1, 9, 0, 0, 0])
            counts = made.results.rows("counts.csv")
            self.assertEqual(promises.count_sentence(counts), "Messages and bytes of a step are those of the formula in 1 of 2 rows.")
            self.assertEqual([row[4:] for row in promises.promise_table(prices(), counts, "mlp")[1:]], [["2", "10", "same"], ["1", "9", "0/0"]])


if __name__ == "__main__":
    unittest.main()
