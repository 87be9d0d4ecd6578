#!/usr/bin/env python3
"""Sentences about random results: their claims are parsed and computed again from summary.csv, independently of the
report. Steps and phases are drawn from a few values, so that ties, zeros, disturbed and missing rows are frequent."""

import random
import re
import unittest

from made import Made, row
from report import answer, captions, scaling, tables
from report.results import ReportError

PHASES = ("data", "scatter", "replicate", "forward", "gather", "loss", "backward", "reduce", "exposed", "optimizer")
ROUNDS = 120


def random_rows(draw):
    """One device, DP and DDP on 2 and 4 devices, of two networks: rows of summary.csv by (strategy, model, devices)."""
    rows = {}
    for model in ("mlp", "convnet"):
        for strategy, world in (("single", 1), ("dp", 2), ("ddp", 2), ("dp", 4), ("ddp", 4)):
            if draw.random() < 0.05:
                continue
            middle = draw.choice((5, 5.1, 9.5, 10, 10.3, 200))
            phases = {phase: draw.choice((0, 0, 0.1, 1, 3)) for phase in PHASES}
            quartiles = middle - draw.choice((0, 0.2, 1)), middle, middle + draw.choice((0, 0.2, 1, 3))
            rows[strategy, model, world] = row(strategy, model, world, quartiles, int(draw.random() < 0.1), **phases)
    return rows


class Run(dict):
    """A row of summary.csv by its columns, as numbers."""

    def tie(self, other):
        return all(a["step_ms_p25"] <= b["step_ms_p50"] <= a["step_ms_p75"] for a, b in ((self, other), (other, self)))


class Random(unittest.TestCase):
    def test_comparisons(self):
        for seed in range(ROUNDS):
            with Made(cores=2, models="mlp convnet", timed="2 4") as made:
                made.summary(*random_rows(random.Random(seed)).values())
                runs = {(one["strategy"], one["model"], int(one["world_size"])): Run(
                    {name: float(value) for name, value in one.items() if name not in ("strategy", "model")}) for one in made.results.rows("summary.csv")}
                for check in (self.differences, self.line_one, self.throughput, self.limits):
                    with self.subTest(seed=seed, of=check.__name__):
                        check(made.results, runs)

    def differences(self, results, runs):
        lines = answer.answer_lines(results)
        worlds = [(model, world) for model in ("mlp", "convnet") for world in (2, 4) if {("dp", model, world), ("ddp", model, world)} <= set(runs)]
        self.assertEqual(len(lines), len(worlds))
        for model, world in worlds:
            line = next(line for line in lines if line.startswith(f"{model}, {world} devices: through memory, "))
            dp, ddp = runs["dp", model, world], runs["ddp", model, world]
            said = re.search(r"DDP (saves|takes) ([0-9.]+) ms (?:of|more than) DP's ([0-9.]+) per step \(([0-9.]+) %\)", line)
            if dp["disturbed"] or ddp["disturbed"]:
                self.assertTrue(line.endswith("disturbed by other work; no conclusion."), line)
            elif dp.tie(ddp):
                self.assertIn(f"DP and DDP tie: their steps take {dp['step_ms_p50']:.{1 if dp['step_ms_p50'] >= 100 else 2}f}", line)
            else:
                saved = dp["step_ms_p50"] - ddp["step_ms_p50"]
                self.assertEqual(said[1], "saves" if saved > 0 else "takes", line)
                self.assertEqual({one["verdict"] for one in results.rows("difference.csv") if (one["model"], one["world_size"]) == (model, str(world))},
                                 {"saves" if saved > 0 else "loses"})
                self.assertAlmostEqual(float(said[2]), abs(saved), delta=0.051)
                self.assertAlmostEqual(float(said[4]), 100 * abs(saved) / dp["step_ms_p50"], delta=0.051)
                self.reason(line, dp, ddp, saved)

    def reason(self, line, dp, ddp, saved):
        """The named phase is the largest in the direction of the step's difference, and the reason names the
        strategy whose phase is longer."""
        said = re.search(r"What (saves|costs) most is ([a-z]+): (.*?)\.( With|$)", line)
        if said:
            weights = {phase: dp[f"{phase}_ms"] - ddp[f"{phase}_ms"] for phase in PHASES}
            with_step = {phase: abs(ms) for phase, ms in weights.items() if ms * saved > 0}
            self.assertEqual((said[1], with_step[said[2]]), ("saves" if saved > 0 else "costs", max(with_step.values())), line)
            self.assertEqual("DDP" in said[3], weights[said[2]] < 0, line)

    def line_one(self, results, runs):
        line, dp, ddp = answer.headline(results), runs.get(("dp", "mlp", 2)), runs.get(("ddp", "mlp", 2))
        if dp is None or ddp is None:
            self.assertEqual(line, "")
        elif dp["disturbed"] or ddp["disturbed"]:
            self.assertIn("no conclusion", line)
        elif dp.tie(ddp):
            self.assertIn("DP and DDP tie through memory.", line)
        else:
            change = ddp["step_ms_p50"] / dp["step_ms_p50"] - 1
            self.assertIn(f"DDP's step is {100 * abs(change):.0f} % {'shorter' if change < 0 else 'longer'} than DP's", line)
            waits, sends = ddp["exposed_ms"] + ddp["replicate_ms"], sum(dp[f"{phase}_ms"] for phase in ("scatter", "replicate", "gather", "reduce"))
            for pattern, ms in ((r"DDP (?:still )?waits for ([0-9.]+) ms", waits), (r"sends and sums (?:only )?([0-9.]+)", sends)):
                for said in re.findall(pattern, line):
                    self.assertAlmostEqual(float(said.rstrip(".")), ms, delta=0.051)
            if "sends and sums" in line:
                self.assertGreater((sends - waits) * -change, 0, line)

    def throughput(self, results, runs):
        for part in captions.throughput(results).rstrip(".").split("; "):
            model = part.partition(":")[0]
            quiet = {key: run for key, run in runs.items() if key[1] == model and not run["disturbed"]}
            one = quiet.get(("single", model, 1))
            said = re.search(r"the fastest is (DP|DDP|one device)(?: on (\d))?", part)
            if one is None:
                self.assertTrue(part.endswith(": disturbed"), part)
                continue
            faster = [run for run in quiet.values() if run["samples_per_s_p50"] > one["samples_per_s_p50"] and not run.tie(one)]
            self.assertEqual("none is faster" in part, not faster, part)
            if said:
                run = quiet[said[1].lower(), model, int(said[2])]
                self.assertEqual(run["samples_per_s_p50"], max(run["samples_per_s_p50"] for run in quiet.values()), part)
                self.assertIn(f"{run['samples_per_s_p50'] / one['samples_per_s_p50']:.2f} times one device", part)
                self.assertEqual(" with it)" in part, any(other is not run and other.tie(run) for other in quiet.values()), part)

    def limits(self, results, runs):
        line, one, ddp = answer.limit_line(results), runs.get(("single", "mlp", 1)), runs.get(("ddp", "mlp", 2))
        if not line:
            return
        self.assertFalse(one["disturbed"] or ddp["disturbed"])
        step, ideal = ddp["step_ms_p50"], one["step_ms_p50"] / 2
        self.assertIn(f"takes {step:.2f} ms, and 1/2 of one device's step is {ideal:.2f}", line)
        self.assertEqual("DDP scales perfectly" in line, step <= ideal, line)
        if "within 5 %" in line:
            self.assertTrue(ideal < step < 1.053 * ideal, line)

    def test_hooks(self):
        """The links for which a communication hook saves time: below a bandwidth, always, never, at some links, or
        not beyond the quartiles."""
        for seed in range(ROUNDS):
            draw, gbits = random.Random(seed), ("1", "10", "25", "100")
            runs = {(strategy, gbit): (draw.choice((5, 9, 9.5, 10, 20)), draw.choice((0.2, 1)), draw.random() < 0.1) for strategy in ("ddp", "fp16") for gbit in gbits}
            with self.subTest(seed=seed), Made() as made:
                made.csv("scaling.csv", scaling.HEAD, *([strategy, 2, 300, gbit, ms - off, ms, ms + off, 4, 4, int(lost)]
                                                        for (strategy, gbit), (ms, off, lost) in runs.items()))
                text, _ = scaling.Links(made.results.rows("scaling.csv"), 300).pays("fp16")
            self.hook(text, {gbit: self.gain(runs["fp16", gbit], runs["ddp", gbit]) for gbit in gbits if not (runs["fp16", gbit][2] or runs["ddp", gbit][2])})

    def gain(self, mine, other):
        """1 where the hook saves time, -1 where it costs time, 0 for a tie."""
        apart = abs(mine[0] - other[0])
        return 0 if apart <= min(mine[1], other[1]) else 1 if mine[0] < other[0] else -1

    def hook(self, text, gains):
        """The sentence's claim about links, as a predicate on a link's saving."""
        below = re.match(r"Below ([0-9.]+) Gbit/s fp16 pays", text)
        pays = [gbit for gbit, gain in gains.items() if gain > 0]
        some = re.search(r"(?:fp16 pays|it does) at ([0-9, and]+) Gbit/s", text)
        if below:
            self.assertTrue(all(gain >= 0 if float(gbit) < float(below[1]) * 0.95 else gain <= 0 for gbit, gain in gains.items()
                                if not 0.95 < float(gbit) / float(below[1]) < 1.05), (text, gains))
            self.assertTrue(pays, text)
        elif some:
            self.assertEqual(re.findall(r"[0-9.]+", some[1]), pays, text)
        elif "always" in text:
            self.assertEqual(set(gains.values()), {1}, text)
        elif "never" in text or "nothing beyond the quartiles" in text:
            self.assertFalse(pays, text)
        else:
            self.assertFalse(gains, text)

    def test_not_a_number(self):
        """A result that is not a number is an error, without a sentence."""
        for number in ("nan", "inf", "1e999", "fast"):
            with Made(cores=2, models="mlp", timed="2") as made:
                made.summary(row("single", "mlp", 1, 10), row("dp", "mlp", 2, 9), row("ddp", "mlp", 2, 8))
                path = made.folder / "summary.csv"
                path.write_text(path.read_text().replace(",8,", f",{number},"), encoding="utf-8")
                with self.assertRaisesRegex(ReportError, f"^{path}, line 4: step_ms_p50 is {number}, which is no number$"):
                    captions.throughput(made.results)

    def test_broken_files(self):
        """Wrong fields, and a file that is cut off at any byte: sentences, or an error that names the file."""
        with Made(cores=2, models="mlp", timed="2") as made:
            made.summary(row("single", "mlp", 1, 10), row("dp", "mlp", 2, 9), row("ddp", "mlp", 2, 8))
            made.csv("networks.csv", ["model", "part", "hidden", "layers", "parameters"], ["mlp", "speed", "256", 3, 55050])
            for name in ("summary.csv", "networks.csv", "facts.txt"):
                path, draw, refused = made.folder / name, random.Random(5), 0
                whole = path.read_text(encoding="utf-8")
                for _ in range(30):
                    words = re.split("([, \n])", whole)
                    words[draw.randrange(0, len(words), 2)] = draw.choice(("", "x", "nan", "-1e999", "\0", '"'))
                    broken = draw.choice(("".join(words), whole[:draw.randrange(len(whole))]))
                    path.write_text(broken, encoding="utf-8")
                    try:
                        for of in (answer.headline, answer.answer_lines, captions.throughput, captions.phases, captions.memory, tables.networks, tables.speed):
                            of(made.results)
                    except ReportError as error:
                        refused += 1
                        self.assertIn(name, str(error), broken)
                    except Exception as error:
                        raise AssertionError(f"{name}: {broken}") from error
                self.assertGreater(refused, 0, name)
                path.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    unittest.main()
