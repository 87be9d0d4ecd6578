#!/usr/bin/env python3
"""Our runs beside peers': medians and quartiles of the ratios within rounds, disturbed rounds left out, aims
reached, missed and undecided."""

import contextlib
import io
import unittest

from made import Made
from report import peers, text

ROWS = [line.split(",") for line in """2,train,mlp,PyTorch DDP,0,2,4,0
2,train,mlp,PyTorch DDP,1,4,9,0
2,train,mlp,PyTorch DDP,2,2,4.2,0
2,train,mlp,PyTorch DDP,3,1,50,1
2,train,convnet,PyTorch DDP,0,2,2.9,0
2,train,convnet,PyTorch DDP,1,2,3.0,0
1,train,mlp,PyTorch,0,10,5,0
2,all-reduce,25 MiB,Gloo,0,1,7,0
2,all-reduce,25 MiB,Gloo,1,1,7.5,0
2,all-reduce,25 MiB,Open MPI,0,1,9,1
4,all-reduce,25 MiB,Open MPI,0,1,9,0""".splitlines()]


def found(*more, **facts):
    with Made(hidden="1024,1024", **facts) as made:
        made.csv("peers.csv", "world,kind,what,peer,round,ours_ms,theirs_ms,disturbed".split(","), *ROWS, *more)
        return peers.pairs(made.results)


def row(pairs, what, world, peer):
    pair = next(pair for pair in pairs if (pair.what, pair.world, pair.peer) == (what, world, peer))
    numbers = [round(one, 3) for one in (pair.ours, pair.theirs, pair.ratio, pair.low, pair.high)] if pair.known else []
    return [pair.good, pair.rounds, *numbers, pair.aim, pair.verdict]


class Peers(unittest.TestCase):
    def test_rows(self):
        pairs = found()
        self.assertEqual(row(pairs, "mlp-1024", "2", "PyTorch DDP"), [3, 4, 2, 4.2, 2.1, 2.05, 2.175, 2, "reached"])
        self.assertEqual(row(pairs, "convnet", "2", "PyTorch DDP"), [2, 2, 2, 2.95, 1.475, 1.462, 1.488, 2.7, "missed"])
        self.assertEqual(row(pairs, "mlp-1024", "1", "PyTorch"), [1, 1, 10, 5, 0.5, 0.5, 0.5, 1.3, "missed"])
        self.assertEqual(row(pairs, "25 MiB", "2", "Gloo"), [2, 2, 1, 7.25, 7.25, 7.125, 7.375, 8, "missed"])
        self.assertEqual(row(pairs, "25 MiB", "2", "Open MPI"), [0, 1, 4, "disturbed"])
        self.assertEqual(row(pairs, "25 MiB", "4", "Open MPI"), [1, 1, 1, 9, 9, 9, 9, None, "-"])
        self.assertLessEqual(max(map(len, text.terminal_table(peers.table(pairs)).splitlines())), 80)

    def test_digits(self):
        ratios = [["2", "all-reduce", f"{i} MiB", "Gloo", 0, 1, ratio, 0] for i, ratio in enumerate((99.5, 100, 100.4))]
        self.assertEqual([line[5] for line in peers.table(found(*ratios))[-3:]], ["99.50", "100", "100"])

    def test_sentences(self):
        self.assertEqual(peers.sentences(found()), [
            "With two ranks, ours trains mlp-1024 2.10 times and convnet 1.48 times as fast as PyTorch DDP.",
            "On one device, ours trains mlp-1024 0.50 times as fast as PyTorch.",
            "With two ranks, ours all-reduces 25 MiB 7.25 times as fast as Gloo.",
            "Of 5 aims 1 was reached, and 1 could not be judged, because the machine was disturbed; missed: convnet with PyTorch DDP (1.48 of "
            "2.7), mlp-1024 with PyTorch (0.5 of 1.3), 25 MiB with Gloo (7.25 of 8)."])

    def test_one_gpu(self):
        """PyTorch's aim differs between a GPU and a CPU, and train_single has its own; other numbers of ranks have
        none."""
        single = ["1", "train", "mlp", "train_single", 0, "100", "98.9", "0"]
        pairs = found(single, device="cuda")
        self.assertEqual([row(pairs, "mlp-1024", "1", peer)[-2:] for peer in ("PyTorch", "train_single")], [[5, "missed"], [0.99, "missed"]])
        self.assertIn("On one device, ours trains mlp-1024 0.50 times as fast as PyTorch.", peers.sentences(pairs))
        self.assertIn("mlp-1024 with train_single (0.989 of 0.99)", peers.sentences(pairs)[-1])
        self.assertEqual(row(found(single, device="cpu"), "mlp-1024", "1", "train_single")[-2:], [None, "-"])
        self.assertEqual(peers.sentences(found(single, device="cpu")), peers.sentences(found()))

    def test_figure(self):
        self.assertEqual([",".join(map(str, one)) for one in peers.drawn(found())], [
            "1,PyTorch DDP: mlp-1024 (2),2.100000,2.050,2.175,2", "2,PyTorch DDP: convnet (2),1.475000,1.462,1.488,2.7",
            "3,PyTorch: mlp-1024 (1),0.500000,0.500,0.500,1.3", "4,Gloo: 25 MiB (2),7.250000,7.125,7.375,8",
            "5,Open MPI: 25 MiB (4),9.000000,9.000,9.000,NaN"])
        self.assertEqual(peers.caption(found()), "The ratios lie between 0.50 (PyTorch: mlp-1024 (1)) and 9.00 (Open MPI: 25 MiB (4)); above 1 we "
                         "are faster.")

    def test_gradients(self):
        with Made(hidden="1024,1024") as made:
            made.csv("gradients.csv", "model,tensor,max_abs,max_magnitude,held".split(","), ["mlp", "fc1.weight", 0.000002, 2, 1],
                     ["mlp", "fc1.bias", 0.025, 0.5, 0], ["mlp", "fc2.bias", 0.5, 0, 0])
            self.assertEqual(peers.gradient_sentence(made.results.named("gradients.csv")), "The gradients of the first step agreed in 1 of 3 "
                             "comparisons of a tensor; the largest difference was 5.0e-02 of the tensor's largest magnitude (mlp-1024, fc1.bias).")

    def test_quick(self):
        """The times of a quick run mean nothing: its figure's ratios have no sentence."""
        for quick, said in (("0", True), ("1", False)):
            with Made(hidden="1024,1024", quick=quick) as made:
                made.csv("peers.csv", "world,kind,what,peer,round,ours_ms,theirs_ms,disturbed".split(","), *ROWS)
                (made.folder / "plots").mkdir()
                with contextlib.redirect_stdout(io.StringIO()):
                    peers.write(made.folder)
                section = (made.folder / "section.md").read_text()
                self.assertEqual(["The ratios lie between" in section, text.QUICK in section], [said, not said])

    def test_mostly_disturbed(self):
        """Where most rounds were disturbed, no sentence is printed."""
        pairs = found(*(["2", "train", "convnet", "PyTorch DDP", turn, "2", "3", "1"] for turn in "234"))
        self.assertEqual(row(pairs, "convnet", "2", "PyTorch DDP"), [2, 5, 2.7, "disturbed"])


if __name__ == "__main__":
    unittest.main()
