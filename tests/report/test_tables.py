#!/usr/bin/env python3
"""Tables, names of networks, the runs behind a row, and figures beside their sentences."""

import itertools
import os
import re
import unittest

from made import Made, row
from report import answer, compare, held, look, tables, text
from report.results import ReportError, Results, Row, network_name, quantile, read_csv


class Tables(unittest.TestCase):
    def test_markdown(self):
        rows = [["cause", "what", "here"], ["all", "1 device", "2.0 ms"], ["none", "x", "disturbed"], ["-", "y", "-"]]
        self.assertEqual(text.markdown_table(rows).splitlines()[1], "|---|---|---:|")
        self.assertEqual(text.terminal_table([["a", "b", "c"], ["xx", "y", "1"]]), "a   b  c\nxx  y  1")

    def test_results_without_runs(self):
        """Kept results have no runs and no traces: they are refused before any file is overwritten."""
        with Made() as made:
            (made.folder / "loss.svg").write_text("drawn", encoding="utf-8")
            with self.assertRaisesRegex(ReportError, "has no runs/"):
                compare.write(made.folder)
            self.assertEqual((made.folder / "loss.svg").read_text(encoding="utf-8"), "drawn")

    def test_words(self):
        self.assertEqual([text.signed(ms) for ms in (0.004, -0.004, 1.5, -1.5)], ["0.00", "0.00", "+1.50", "-1.50"])
        self.assertEqual([text.listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])], ["", "a", "a and b", "a, b and c"])
        self.assertEqual(text.slug("Which is faster, phase by phase"), "which-is-faster-phase-by-phase")
        self.assertEqual(quantile([4, 1, 3, 2], 0.5), 2.5)

    def test_network_names(self):
        self.assertEqual([network_name(*one) for one in (("mlp", "1024;1024"), ("mlp", ";".join(["512"] * 8)), ("mlp", "256;128"),
                                                        ("mlp", ""), ("convnet", ""))],
                         ["mlp-1024", "mlp-8x512", "mlp-256-128", "mlp", "convnet"])

    def test_networks(self):
        with Made() as made:
            made.csv("networks.csv", ["part", "model", "hidden", "layers", "parameters"], ["speed", "mlp", "1024;1024", 3, 1126410],
                     ["curves", "mlp", "256;128", 3, 50826], ["equivalence", "mlp", "256;128", 3, 50826],
                     ["growth", "mlp", "64", 2, 5000], ["timeline", "toy", "", 2, 165])
            self.assertEqual(tables.networks(made.results)[1:], [
                ["mlp-1024", "2 x 1024", "3", "1.1 M", "4.51", "speed, phases, memory"],
                ["mlp-256-128", "256, 128", "3", "50.8 k", "0.20", "loss; bits"],
                ["mlp-64", "64", "2", "5.0 k", "0.02", "growth"], ["toy", "-", "2", "165", "0.0007", "the step, overlap, buckets, the model"]])

    def test_speed(self):
        with Made(cores=2) as made:
            made.summary(row("single", "mlp", 1, 8), row("dp", "mlp", 2, 5, 1), row("ddp", "mlp", 2, 2.5), row("ddp", "mlp", 4, 2, timed=0))
            found = tables.speed(made.results)
            self.assertEqual([one[6] for one in found[1:]], ["1.00", "disturbed", "3.20", "-"])
            self.assertEqual(found[1], ["mlp", "single", "1", "37500", "8.00", "7.84-8.16", "1.00", "2.00", "-", "1.00"])
            self.assertEqual(found[4], ["mlp", "ddp", "4", *["-"] * 4, "2.00", "1.00", "1.00"])

    def test_amounts(self):
        """Units and digits on both sides of each change."""
        self.assertEqual([held.amount(count) for count in (999994999, 1e9, 1.25e9, 5e6)], ["999.99 MB", "1.00 GB", "1.25 GB", "5.00 MB"])
        for count, said in ((12500, "12.5 k parameters, 50.0 kB"), (12501, "12.5 k parameters, 0.1 MB"), (1126410, "1.1 M parameters, 4.5 MB")):
            self.assertIn(said, answer.network_text(Row(name="a", parameters=str(count))))
        with Made() as made:
            made.csv("networks.csv", ["part", "model", "hidden", "layers", "parameters"], ["speed", "a", "", 1, 2500], ["speed", "b", "", 1, 2501])
            self.assertEqual([one[4] for one in tables.networks(made.results)[1:]], ["0.0100", "0.01"])

    def test_batches(self):
        with Made(cores=2) as made:
            made.summary(row("single", "mlp", 1, 8), row("dp", "mlp", 2, 5, global_batch=7), row("single", "gpt", 1, 8, global_batch=12))
            self.assertEqual(tables.batches(made.results), "mlp 300, gpt 12")

    def test_an_empty_file(self):
        with Made() as made:
            (made.folder / "empty").write_text("")
            self.assertEqual([made.results.has(name) for name in ("empty", "none", "facts.txt")], [False, False, True])

    def test_curves(self):
        """A run without a record, such as a reader's run that failed, has no loss and no accuracy."""
        with Made(cores=2, worlds="2", epochs=3, curve_models="mlp") as made:
            for run, losses in (("single-1", (2, 1)), ("dp-2", (2, 1.5)), ("ddp-2", (2.25, 1.5))):
                made.csv(f"runs/curve-mlp-{run}/steps.csv", ["step", "loss"], *enumerate(losses))
            made.write("runs/curve-mlp-single-1/summary.json", ['{"final_loss": 0.98765, "test_accuracy": 0.5, "best_test_accuracy": 0.75}'])
            found = tables.curves(compare.Comparison(made.folder))
            self.assertEqual(found[1], ["mlp", "single", "1", "3", "0.988", "50.00 %", "75.00 %", "-", "-"])
            self.assertEqual([one[4:] for one in found[2:]], [["-", "-", "-", "5.0e-01", "-"], ["-", "-", "-", "5.0e-01", "2.5e-01"]])

    def test_why_disturbed(self):
        for spread, why in ((0.26, "its runs lie 26 % apart"), (0.25, "the probes beside most of its runs measured another speed")):
            with Made(cores=2) as made:
                made.summary(row("dp", "mlp", 2, 5, 1, spread=spread))
                self.assertEqual(tables.disturbed(made.results), [f"mlp dp:2 ({why})"])

    def test_equivalence(self):
        with Made() as made:
            head = ["model", "a", "b", "what", "required", "max_ulp", "held"]
            made.csv("equivalence.csv", head, ["toy", "dp:2", "ddp:2", "gradient", "bitwise", 0, 1],
                     ["toy", "dp:2", "ddp:2", "weight", "bitwise", 3, 0], ["toy", "dp:2", "single:1", "gradient", "tolerance", 100351, 1])
            self.assertEqual(tables.equivalence(made.results)[1:], [
                ["toy", "dp:2", "ddp:2", "same bits", "2", "0", "3", "-", "-", "NO: 1 differ"],
                ["toy", "dp:2", "single:1", "tolerance", "1", "100351", "-", "-", "-", "yes"]])

    def said(self, *rows, spread=0.3):
        with Made(cores=2) as made:
            made.summary(*(row(strategy, "mlp", world, 5, disturbed, repeats=repeats, timed=timed, spread=spread)
                           for strategy, world, repeats, timed, disturbed in rows))
            made.facts(repeats=5)
            return tables.runs_text(made.results), tables.disturbed_lines(made.results)

    def test_runs(self):
        quiet = ["- Nothing disturbed the machine noticeably."]
        self.assertEqual(self.said(("dp", 2, 5, 1, 0), ("ddp", 2, 5, 1, 0)), ("Every row: 5 runs,", quiet))
        self.assertEqual(self.said(("dp", 2, 4, 1, 0), ("ddp", 2, 5, 1, 0)), (
            "Every row: 5 runs, less the disturbed ones where these are at most half (mlp, DP, 2 devices: 4 of 5 kept),", []))
        self.assertEqual(self.said(("single", 1, 3, 1, 0), ("ddp", 4, 4, 1, 0))[0], "Every row: 5 runs, less the disturbed ones where these are at most half (mlp, one device: "
                         "3 of 5 kept; mlp, DDP, 4 devices: 4 of 5 kept),")
        self.assertEqual(self.said(("dp", 2, 5, 1, 1)), ("Every row: 5 runs,", [
            "- **Disturbed.** Other work used the machine during these runs; no conclusion uses them: mlp dp:2 (its runs lie 30 % "
            "apart)."]))
        self.assertEqual(self.said(("dp", 2, 5, 1, 1), spread=0.2)[1][0][-69:], "mlp dp:2 (the probes beside most of its runs measured another speed).")
        self.assertEqual(self.said(("dp", 2, 5, 1, 0), ("dp", 8, 0, 0, 0)), ("Every row: 5 runs,", quiet))


class Drawn(unittest.TestCase):
    def test_difference(self):
        """The figure's numbers are those of the sentence, also where rounding moves a hundredth to the rest."""
        with Made(cores=2) as made:
            made.summary(row("single", "mlp", 1, 4), row("dp", "mlp", 2, 2.2113, forward=1.0664, backward=0.0614),
                         row("ddp", "mlp", 2, (2.0, 2.0707, 2.1), forward=0.9990, backward=0.0))
            pair = answer.pairs(made.results.rows("difference.csv"))[0]
            compare.lay_out_difference(made.folder / "drawn.csv", pair)
            shown = {one["phase"]: float(one["shown_ms"]) for one in read_csv(made.folder / "drawn.csv")}
            sentence = answer.difference_sentence(pair, "mlp", "here")
            for phase, ms in shown.items():
                self.assertIn(f"saves {-ms:.2f} ms" if phase == "step" else f"{phase} {text.signed(ms)}", sentence)
            self.assertAlmostEqual(sum(shown.values()), 2 * shown["step"])

    def test_key(self):
        """The legend is complete; phases too short to be seen are not in it."""
        rows = read_rows([("forward", 0, 80), ("gather", 80, 82), ("data", 82, 82.1), ("waiting", 83, 100)])
        self.assertEqual(compare.seen_phases(450, [rows]), "forward gather")

    def test_no_bracket_where_disturbed(self):
        """The timeline's bracket is between the ends of the steps; disturbed runs have none."""
        for noted, wanted in ((["timeline-dp"], []), (["speed-mlp-dp-2-1"], ["dp_end = 9.0", "ddp_end = 7.0"])):
            with Made(models="mlp") as made:
                (made.folder / "plots").mkdir()
                made.write("disturbed.txt", noted)
                drawn = compare.Comparison(made.folder)
                drawn.steps = {label: ([], [(1, 0, end, "forward", -1)], []) for label, end in (("dp", 9.0), ("ddp", 7.0))}
                drawn.settings()
                self.assertEqual([line for line in made.results.lines("plots/settings.gp") if re.match("d+p_end", line)], wanted)

    def test_grey(self):
        """In a grey print all phases differ by lightness or hatch, and the strategies by dash and mark."""
        def lightness(phase):
            colour = look.COLOURS[look.PHASES[phase]]
            return sum(share * int(colour[i:i + 2], 16) / 255 for share, i in ((0.3, 1), (0.59, 3), (0.11, 5)))
        for one, other in itertools.combinations(look.PHASES, 2):
            hatches = [look.HATCHES.get(phase, 0) for phase in (one, other)]
            self.assertTrue(abs(lightness(one) - lightness(other)) > 0.12 or hatches[0] != hatches[1], (one, other))
        for place in (1, 2):
            self.assertEqual(len({kind[place] for kind in look.STRATEGIES.values()}), len(look.STRATEGIES))

    def test_key_of_a_relative_folder(self):
        with Made() as made:
            (made.folder / "plots").mkdir(exist_ok=True)
            (made.folder / "plots" / "phases-mlp.csv").write_text("phase,begin_ms,end_ms\nforward,0,80\n")
            before = os.getcwd()
            os.chdir(made.folder.parent)
            try:
                self.assertEqual(compare.key_phases(Results(made.folder.name)), "forward")
            finally:
                os.chdir(before)

    def test_missing_results(self):
        with Made() as made:
            self.assertEqual((Results(made.folder).models, Results(made.folder).timed_worlds, Results(made.folder).world), ([], [], 0))


def read_rows(parts):
    with Made() as made:
        made.csv("parts.csv", ["phase", "begin_ms", "end_ms"], *parts)
        return made.results.rows("parts.csv")


if __name__ == "__main__":
    unittest.main()
