#!/usr/bin/env python3
"""All-reduces: medians, the table, the sentences and the figure's data of two backends, one without an aim; and
disturbed rounds."""

import unittest

from made import Made
from report import allreduce
from report.text import NOTHING


def output(world, rows, trip="", backend="shm"):
    return [f"# all_reduce F32 sum world={world} ranks=processes backend={backend}",
            "      bytes     min_us     p50_us     p99_us  algbw  busbw  bound_us    of wrong", *rows,
            f"# round trip of a cache line between two cores: p50_us={trip} min_us=0.100" if trip else
            "# no round trip of a cache line: the ranks share no memory (several hosts?)"]


SHM = [output(4, [f"4096 0.30 0.{2 + 2 * turn} 0.90 10.24 15.36 - - 0",
                  f"26214400 900.00 {1 + turn}000.00 5000.00 1.00 1.00 {800 + 1000 * turn}.0 0.90 0"], f"0.{turn + 1}00") for turn in (1, 2)]
MPI = [output(4, ["4096 3.00 5.00 9.00 0.10 0.10 - - 0", "26214400 9000.00 25000.00 50000.00 1.00 1.00 - - 0"], backend="mpi")] * 2


def collected(*disturbed, **backends):
    """The values parsed from the outputs of each backend's rounds: sizes, round trips, and lost rounds."""
    rounds = len(next(iter(backends.values())))
    with Made(backends=" ".join(backends), sweeps="sweep", rounds=rounds) as made:
        for backend, outputs in backends.items():
            for turn, lines in enumerate(outputs):
                made.write(f"runs/{backend}-sweep-{turn + 1}/output.txt", lines)
        made.write("disturbed.txt", disturbed)
        lost = allreduce.collect(made.results)
        return allreduce.sizes(made.results.rows("allreduce.csv")), made.results.rows("trips.csv"), lost


class AllReduce(unittest.TestCase):
    def test_medians(self):
        found, trips, lost = collected(shm=SHM)
        self.assertEqual([one["p50"] for one in found], [0.5, 2500])
        self.assertAlmostEqual(found[1]["busbw"], 15.7286, places=4)
        self.assertEqual(allreduce.table(found)[1:], [["shm", "4 KiB", "0.30", "0.50", "0.90", "8.19", "12.29", "-", "-"],
                                                      ["shm", "25 MiB", "900.00", "2500.00", "5000.00", "10.49", "15.73", "2300.0", "0.92"]])
        self.assertEqual(lost, [])
        self.assertEqual(allreduce.trip_sentence(found, trips), "A cache line goes from one core to another and back in 0.250 us. An all-reduce of "
                         "4 KiB takes, in such round trips, 2.0 through shm (aim: at most 2).")
        self.assertEqual(allreduce.share_sentence(found), "Share of the memory bound from 25 MiB on: through shm 0.92 to 0.92, 0.92 at "
                         "25 MiB (aim: at least 0.90).")

    def test_two_backends(self):
        found, trips, _ = collected(shm=SHM, mpi=MPI)
        self.assertEqual(allreduce.drawn(found), (["bytes", "bound", "shm", "mpi"], [
            [4096, "NaN", "12.288", "1.2288"], [26214400, "17.0963", "15.7286", "1.57286"]]))
        self.assertTrue(allreduce.share_sentence(found).endswith(" (aim: at least 0.90)."))  # mpi has no aim
        for one in found:
            one["of"] = {"shm": 0.5, "mpi": 0.25}[one["backend"]] if one["bytes"] > 4096 else one["of"]
        self.assertTrue(allreduce.share_sentence(found).endswith("through shm 0.50 to 0.50, 0.50 at 25 MiB (aim: at least 0.90); through mpi 0.25 to 0.25, 0.25 "
                                                                 "at 25 MiB."))
        self.assertIn("2.0 through shm (aim: at most 2), 20.0 through mpi.", allreduce.trip_sentence(found, trips))

    def test_small(self):
        """The largest of the small sizes is printed beside the round trip."""
        lines = output(2, [f"{count} 0.10 {us} 9.00 1.00 1.00 - - 0" for count, us in ((4, 0.2), (4096, 1.0), (8192, 4.0))], "0.500")
        found, trips, _ = collected(shm=[lines])
        self.assertIn(" An all-reduce of 4 KiB takes, in such round trips, 2.0 through shm ", allreduce.trip_sentence(found, trips))

    def test_disturbed(self):
        """One disturbed round of three is left out. With two, none is left out, and no sentence is printed."""
        rounds = [output(2, [f"4096 0.30 {turn}.00 9.00 10.24 15.36 - - 0"], "0.500") for turn in (1, 2, 3)]
        found, _, lost = collected("shm-sweep-1", shm=rounds)
        self.assertEqual((found[0]["p50"], lost), (2.5, []))
        found, trips, lost = collected("shm-sweep-1", "shm-sweep-3", shm=rounds)
        self.assertEqual((found[0]["p50"], lost), (2, ["shm"]))
        self.assertEqual((allreduce.trip_sentence(found, trips, lost), allreduce.share_sentence(found, lost)), ("", NOTHING))
        found, _, lost = collected("mpi-sweep-1", "mpi-sweep-2", shm=SHM, mpi=MPI)
        self.assertEqual(lost, ["mpi"])
        self.assertTrue(allreduce.share_sentence(found, lost).endswith("through shm 0.92 to 0.92, 0.92 at 25 MiB (aim: at least 0.90)."))


if __name__ == "__main__":
    unittest.main()
