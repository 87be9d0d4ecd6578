#!/usr/bin/env python3
"""The cost of promises: differences within a round; a step's parts add up to it; and disturbed rounds."""

import json
import unittest

from made import Made
from report import promises

PRICES = """set,name,round,disturbed,ms
mlp,plain,1,0,10
mlp,noop,1,0,9
mlp,plain,2,0,12
mlp,noop,2,0,11.5
mlp,plain,3,0,10
mlp,noop,3,1,3"""  # noop was disturbed in round 3


def prices(found=None):
    with Made() as made:
        made.write("prices.csv", found or PRICES.splitlines())
        return promises.Prices(made.results.rows("prices.csv"))


TRACE = [{"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 5, "dur": 1, "args": {"number": 1, "bytes": 99}},
         {"ph": "X", "name": "optimizer", "pid": 0, "tid": 0, "ts": 8, "dur": 1, "args": {"number": 0}},
         {"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 15, "dur": 1, "args": {"number": 2, "bucket": 0, "bytes": 12}},
         {"ph": "X", "name": "all_reduce", "pid": 1, "tid": 1, "ts": 15, "dur": 1, "args": {"number": 2, "bucket": 0, "bytes": 12}},
         {"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 17, "dur": 1, "args": {"number": 3, "bucket": 1, "bytes": 34}},
         {"ph": "X", "name": "optimizer", "pid": 0, "tid": 0, "ts": 21, "dur": 1, "args": {"number": 1}},
         {"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 30, "dur": 1, "args": {"number": 4, "bytes": 77}}]


class Counts(unittest.TestCase):
    def test_formula(self):
        """A matrix of 10 x 20 (800 bytes: 13 cache lines, 832) and a vector of 10 (64 bytes) in two buckets; 24 bytes of a batch norm's
        buffers. PowerSGD: 4 (10 + 20) and the vector's 40; a 3 x 4 matrix is not worth it. Two batch norms: 4 (33 + 32) and 4 (65 + 64)."""
        shapes = [[10, 20], [10]]
        for name, channels, wanted in (("plain", [2], (3, 920)), ("fp16", [2], (3, 472)), ("noop", [2], (1, 24)), ("find-unused", [2], (4, 928)),
                                       ("no-buffers", [2], (2, 896)), ("powersgd", [], (6, 160)), ("plain", [], (2, 896)),
                                       ("sync-batch-norm", [16, 32], (7, 896 + 260 + 516 + 400))):
            self.assertEqual(promises.formula(name, shapes, 2, channels), wanted, name)
        self.assertEqual(promises.formula("powersgd", [*shapes, [3, 4]], 2, []), (6, 208))
        self.assertEqual(promises.formula("powersgd", [[10, 4, 5]], 1, []), (3, 120))
        self.assertEqual([promises.formula("powersgd", [[4, n]], 1, [])[1] for n in (4, 5)], [4 * 4 * 4, 4 * (4 + 5)])  # a saving of half or less does not count
        self.assertEqual(promises.formula("fsdp", [[3, 4], [5]], 2, [7]), (6, 3 * (4 * 2 * 4 + 4 * 3)))  # of 3 and of 5 rows a rank has 2 and 3

    def test_last_step(self):
        self.assertEqual(promises.of_last_step(TRACE), [12, 34])
        late = {"ph": "X", "name": "all_reduce", "pid": 0, "tid": 1, "ts": 8.5, "dur": 1, "args": {"number": 9, "bytes": 55}}  # overlaps the end of the last but one
        self.assertEqual(promises.of_last_step([*TRACE, late]), [12, 34])

    def test_rows(self):
        with Made() as made:
            made.write("facts.txt", ["models convnet", "promises-convnet plain fp16"])
            made.write("runs/summary-convnet/output.txt", ["1 BatchNorm 2 weight [2] bias [2]"])
            for name in ("plain", "fp16"):
                made.write(f"runs/count-convnet-{name}/trace.json", [json.dumps(TRACE)])
                head = json.dumps({"__metadata__": {}, "a": {"shape": [3], "dtype": "F32"}}).encode()
                (made.folder / f"runs/count-convnet-{name}/gradients").write_bytes(len(head).to_bytes(8, "little") + head + b"123")
            self.assertEqual(promises.count_rows(made.results), [["convnet", "plain", 2, 46, 3, 88, 0], ["convnet", "fp16", 2, 46, 3, 56, 0]])

    def test_prices(self):
        with Made() as made:
            made.write("facts.txt", ["models mlp", "promises-mlp plain noop", "rounds 2"])
            for run, ms in (("plain-1", 10), ("plain-2", 12), ("noop-1", 9), ("noop-2", 8)):
                made.csv(f"runs/price-mlp-{run}/steps.csv", ["step", "step_ms", "optimizer_ms"], [4, 99, 9], [5, ms, 1], [6, ms, 1])
            found = promises.price_rows(made.write("disturbed.txt", ["price-mlp-noop-1"]).results)
        self.assertEqual(found, [["mlp", "plain", 1, 0, "10.00000"], ["mlp", "noop", 1, 1, "9.00000"],
                                 ["mlp", "plain", 2, 0, "12.00000"], ["mlp", "noop", 2, 0, "8.00000"]])


class Promises(unittest.TestCase):
    def test_price(self):
        name, ms, (low, price, high), lost = prices().price("mlp")[-1]
        self.assertEqual((name, ms, low, price, high, lost), ("noop", 10.25, -0.875, -0.75, -0.625, False))

    def test_noop(self):
        """The ratios 10 / 9 and 12 / 11.5, or their inverses."""
        self.assertEqual(promises.noop_sentence(prices()), "DDP's step takes 1.077 times as long as without communication (aim: at most 1.06).")
        swapped = [line.replace("plain", "x").replace("noop", "plain").replace("x", "noop") for line in PRICES.splitlines()]
        self.assertIn(" takes 0.929 times ", promises.noop_sentence(prices(swapped)))

    def test_highest_price(self):
        self.assertEqual(promises.promise_sentence(promises.bars(prices(), {"mlp": "mlp-1024"})),
                         "The highest price is mlp-1024: noop's, -0.75 ms per step, the lowest mlp-1024: noop's, -0.75 ms.")

    def test_disturbed(self):
        """Costs of which more than half of the rounds do not count, or whose times differ too much."""
        for old, new in (("mlp,noop,2,0", "mlp,noop,2,1"), ("mlp,plain,2,0,12", "mlp,plain,2,0,22")):
            found = prices([line.replace(old, new) for line in PRICES.splitlines()])
            self.assertTrue(found.price("mlp")[-1][-1])
            self.assertEqual(promises.promise_table(found, [], "mlp")[-1][2], "disturbed")
            self.assertEqual(promises.promise_sentence(promises.bars(found, {"mlp": "mlp-1024"})), promises.NOTHING)
            self.assertEqual(promises.noop_sentence(found), promises.NOTHING)

    def test_counts(self):
        with Made() as made:
            made.csv("counts.csv", "model,promise,messages,bytes,formula_messages,formula_bytes,held".split(","), ["mlp", "plain", 2, 10, 2, 10, 1],
                     ["mlp", "noop", 1, 9, 0, 0, 0])
            counts = made.results.rows("counts.csv")
            self.assertEqual(promises.count_sentence(counts), "A step's messages and bytes equal the formula's in 1 of 2 rows.")
            self.assertEqual([row[4:] for row in promises.promise_table(prices(), counts, "mlp")[1:]], [["2", "10", "same"], ["1", "9", "0/0"]])


if __name__ == "__main__":
    unittest.main()
