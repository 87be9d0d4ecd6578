#!/usr/bin/env python3
"""Sentences of the other commands' sections, about random results: their claims are parsed and computed again from
the rows, independently of the report. Times are drawn from a few values, so that ties, disturbed rounds and steps of
equal length are frequent."""

import json
import random
import re
import statistics
import unittest

from made import Made
from report import ladder, paper, peers, promises, published

SEEDS = 40
median = statistics.median


def quartile_spread(values):
    """Returns (first quartile, third quartile)."""
    cuts = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return cuts[0], cuts[2]


def are_apart(values):
    low, high = quartile_spread(values)
    return high > 1.25 * low


def counted(rounds, is_bad):
    """Returns (the counted rounds, whether most are disturbed)."""
    good = [one for one in rounds if not is_bad(one)]
    return (good, False) if 2 * len(good) >= len(rounds) else (rounds, True)


class Sections(unittest.TestCase):
    def each_seed(self, check):
        for seed in range(SEEDS):
            with self.subTest(seed=seed):
                check(random.Random(seed))

    def near(self, said, value, digits, text):
        self.assertAlmostEqual(float(said), value, delta=0.501 * 10 ** -digits, msg=text)

    # ---- peers ----------------------------------------------------------------------------------------------------

    def test_peers(self):
        self.each_seed(self.some_peers)

    def some_peers(self, draw):
        named = [("train", "mlp"), ("train", "convnet"), ("all-reduce", "25 MiB")]
        rows = [[kind, what, world, peer, turn, draw.choice((1, 2, 4)), draw.choice((1.5, 2, 5, 20)), int(draw.random() < 0.3)]
                for world in (1, 2, 4) for kind, what in named for peer in (("Gloo", "Open MPI") if kind != "train" else ("PyTorch DDP",) if world > 1 else ("PyTorch",))
                if (kind == "train" or world > 1) and draw.random() < 0.9 for turn in range(draw.choice((1, 3, 4)))]
        with Made() as made:
            made.csv("peers.csv", "kind,what,world,peer,round,ours_ms,theirs_ms,disturbed".split(","), *rows)
            lines = peers.sentences(peers.pairs(made.results))
        ratios, aims = {}, {}
        for kind, what, world, peer in {tuple(row[:4]) for row in rows}:
            mine = [row for row in rows if row[:4] == [kind, what, world, peer]]
            good = [row[6] / row[5] for row in mine if not row[7]]
            ratio = median(good) if good and 2 * len(good) >= len(mine) else None
            aim = {1: peers.ON_ONE_CPU, 2: peers.WITH_TWO}.get(world, {}).get((kind if kind != "train" else what, peer))
            if aim:
                aims[what, peer] = ratio, aim
            if ratio and (world == 2 or aim):
                ratios[peer, world, "trains" if kind == "train" else "all-reduces", what] = ratio
        said = {(line[4], 2 if line[1] == "With two ranks" else 1, line[2], what): ratio
                for line in (re.fullmatch(r"(.*?), ours (trains|all-reduces) (.*) as fast as (.*)\.", line) for line in lines) if line
                for what, ratio in re.findall(r"(?:, | and |^)(.*?) ([0-9.]+) times", line[3])}
        self.assertEqual(set(said), set(ratios), lines)
        for key, ratio in said.items():
            self.near(ratio, ratios[key], 2, lines)
        last = [line for line in lines if line.startswith("Of ")]
        self.assertEqual(bool(last), bool(aims))
        if aims:
            reached, lost = (sum(holds(*one) for one in aims.values()) for holds in (lambda r, aim: r is not None and r >= aim, lambda r, _: r is None))
            self.assertIn(f"Of {len(aims)} aim{'s' * (len(aims) > 1)} {reached} {'was' if reached == 1 else 'were'} reached", last[0])
            self.assertEqual(f"and {lost} could not be judged" in last[0], lost > 0, last)
            missed = set(re.findall(r"(\w+(?: MiB)?) with (.*?) \(", last[0]))
            self.assertEqual(missed, {key for key, (ratio, aim) in aims.items() if ratio is not None and ratio < aim}, last)

    # ---- promises -------------------------------------------------------------------------------------------------

    def test_promises(self):
        self.each_seed(self.some_promises)

    def some_promises(self, draw):
        names = ("plain", "noop", "fp16", "static-graph")
        ms, turns = {}, range(1, draw.choice((1, 3, 4)) + 1)
        for turn in turns:
            for name in names:
                ms["mlp", name, turn] = draw.choice((9, 10, 10.5, 14)), draw.random() < 0.15
        with Made() as made:
            made.csv("prices.csv", ["set", "name", "round", "disturbed", "ms"],
                     *([group, name, turn, int(bad), value] for (group, name, turn), (value, bad) in ms.items()))
            made.csv("counts.csv", ["model", "promise", "held"], *(["mlp", name, k % 2] for k, name in enumerate(names)))
            prices, counts = promises.Prices(made.results.rows("prices.csv")), made.results.rows("counts.csv")
        self.assertEqual(promises.count_sentence(counts), "A step's messages and bytes equal the formula's in 2 of 4 rows.")
        self.highest_price(promises.promise_sentence(promises.bars(prices, {"mlp": "mlp"})), ms, names, turns)
        self.without_communication(promises.noop_sentence(prices), ms, turns)

    def rounds_of(self, ms, turns, *runs):
        """Returns the counted rounds of these runs, and whether they are disturbed."""
        rounds, lost = counted(list(turns), lambda turn: any(ms[(*run, turn)][1] for run in runs))
        return rounds, lost or any(are_apart([ms[(*run, turn)][0] for turn in rounds]) for run in runs)

    def highest_price(self, text, ms, names, turns):
        known = {}
        for name in names[1:]:
            rounds, lost = self.rounds_of(ms, turns, ("mlp", "plain"), ("mlp", name))
            if not lost:
                known[name] = median([ms["mlp", name, turn][0] - ms["mlp", "plain", turn][0] for turn in rounds])
        said = re.fullmatch(r"The highest price is mlp: (.*)'s, (.*) ms per step, the lowest mlp: (.*)'s, (.*) ms\.", text)
        self.assertEqual(said is None, not known, text)
        if said:
            for name, price, most in ((said[1], said[2], max), (said[3], said[4], min)):
                self.assertEqual(known[name], most(known.values()), text)
                self.near(price, known[name], 2, text)

    def without_communication(self, text, ms, turns):
        rounds, lost = self.rounds_of(ms, turns, ("mlp", "plain"), ("mlp", "noop"))
        self.assertEqual("no conclusion about their times" in text, lost, text)
        if not lost:
            wanted = median([ms["mlp", "plain", turn][0] / ms["mlp", "noop", turn][0] for turn in rounds])
            self.near(re.search(r"takes ([0-9.]+) times", text)[1], wanted, 3, text)

    # ---- the ladder -----------------------------------------------------------------------------------------------

    def test_ladder(self):
        self.each_seed(self.some_ladder)

    def some_ladder(self, draw):
        rungs = ("fresh threads", "kept threads", "flat gradients", "buckets", "overlap")
        turns = {turn: ([[draw.choice((39, 40, 41, 20) if draw.random() < 0.2 else (30.5, 31, 39.125, 40)) for _ in rungs] for _ in range(2)], draw.random() < 0.25)
                 for turn in range(1, draw.choice((2, 4)) + 1)}
        steps = {(program, turn): draw.choice((30, 31, 33, 40)) for program in ladder.RUNG_OF for turn in turns}
        with Made(networks="memory", turns=len(turns)) as made:
            for turn, (rounds, _) in turns.items():
                made.csv(f"runs/ladder-0-{turn}/rounds.csv", ["weights", "rung", "says", "devices", "link", "round", "ms"],
                         *(["equal", rung, "words", "threads", "memory", k, ms] for k, one in enumerate(rounds) for rung, ms in zip(rungs, one)))
                for program in ladder.RUNG_OF:
                    made.write(f"runs/{program}-0-{turn}/summary.json", [json.dumps({"step_ms_p50": steps[program, turn]})])
            made.write("disturbed.txt", [f"ladder-0-{turn}" for turn, (_, bad) in turns.items() if bad])
            one = ladder.Ladder(made.results, 0)
        good = [turn for turn, (_, bad) in turns.items() if not bad]
        lost = 2 * len(good) < len(turns)
        self.assertEqual(one.rounds_sentence(), f"{2 * (len(turns) - len(good))} of {2 * len(turns)} rounds were disturbed: no conclusion." if lost else
                         f"All {2 * len(turns)} rounds count." if len(good) == len(turns) else
                         f"{2 * len(good)} of {2 * len(turns)} rounds count; the others were disturbed.")
        of = list(zip(*(ms for turn in (turns if lost else good) for ms in turns[turn][0])))  # each rung's times
        self.climbed(one.sentence(), dict(zip(rungs, of)), lost)
        for program, rung in ladder.RUNG_OF.items():
            ratios = [median([ms[rungs.index(rung)] for ms in turns[turn][0]]) / steps[program, turn] for turn in good]
            text = one.trainer_sentence(program)
            self.assertEqual("disturbed" in text, lost, text)
            if not lost:
                self.near(re.search(r"takes ([0-9.]+) times", text)[1], median(ratios), 3, text)
                self.assertEqual("within 5 %: yes" in text, 0.95 <= median(ratios) <= 1.05, text)

    def climbed(self, text, times, lost):
        """The rungs that save time and that add time, and the disturbed ones: by their own rounds, or by those of
        the rung above."""
        names, ms = list(times), {name: median(of) for name, of in times.items()}
        shaky = {name: lost or quartile_spread(of)[1] - quartile_spread(of)[0] > ms[name] / 4 for name, of in times.items()}
        unsure = [name for k, name in enumerate(names) if shaky[name] or (k and shaky[names[k - 1]])]
        if {"kept threads", names[-1]} & set(unsure):
            self.assertTrue(text.endswith("disturbed by other work; no conclusion."), text)
            return
        saved = {name: median([a - b for a, b in zip(times[above], times[name])]) for above, name in zip(names[1:], names[2:]) if name not in unsure}
        said = re.search(r"takes (.*) ms a step \((.*) with fresh threads\), DistributedDataParallel (.*)\. In ms.*: saved by (.*); added by (.*?)\.(?: Disturbed: (.*)\.)?$", text)
        for number, name in zip(said.groups(), ("kept threads", "fresh threads", names[-1])):
            self.near(number, ms[name], 1, text)
        for listed, sign in ((said[4], 1), (said[5], -1)):
            found = {one.rpartition(" ")[0]: float(one.rpartition(" ")[2]) for one in listed.split(", ") if one != "no rung"}
            wanted = {name: sign * one for name, one in saved.items() if sign * one > ms["kept threads"] / 50}
            self.assertEqual(list(found), list(wanted), text)
            for name, number in found.items():
                self.near(number, wanted[name], 1, text)
        self.assertEqual(said[6].split(", ") if said[6] else [], unsure, text)

    # ---- the DDP paper's figures ----------------------------------------------------------------------------------

    def test_paper(self):
        self.each_seed(self.some_paper)

    def some_paper(self, draw):
        runs = [(model, link) for model in ("mlp", "convnet") for link in ("paper-rdma", "10gbe")]
        for column, values, check in (("bucket_mb", (0, 1, 25), self.buckets), ("ranks", (1, 2, 4), self.worlds), ("every", (1, 2, 4, 8), self.skips)):
            seconds = {(*run, value): [(draw.choice((1, 1.1, 2, 2.5)), draw.random() < 0.1) for _ in range(3)] for run in runs for value in values}
            with Made() as made:
                made.csv("rows.csv", ["model", "link", column, "round", "disturbed", "seconds"],
                         *([*key, turn, int(bad), one] for key, of in seconds.items() for turn, (one, bad) in enumerate(of)))
                found = paper.medians(made.results.rows("rows.csv"))
            known = {}
            for run in runs:
                by = {value: counted(seconds[(*run, value)], lambda one: one[1]) for value in values}
                if not any(lost or are_apart([one for one, _ in of]) for of, lost in by.values()):
                    known[" ".join(run)] = {value: median([one for one, _ in of]) for value, (of, _) in by.items()}
            check(found, known)

    def said_of(self, text, pattern, known):
        """A sentence's claim for each run, by its name; it must name exactly these runs."""
        if not known:
            self.assertIn("no conclusion about their times", text)
            return {}
        said = {found[-1]: found[:-1] for found in re.findall(pattern + r" for ((?:mlp|convnet) [\w-]+)", text)}
        self.assertEqual(list(said), list(known), text)
        return said

    def buckets(self, found, known):
        text = paper.buckets_sentence(found)
        for run, (best,) in self.said_of(text, r"([0-9.]+) MB", known).items():
            of = known[run]
            self.assertEqual(of[int(best)], min(of.values()), text)
            alone = re.search(re.escape(f"{best} MB for {run}") + r" \(a bucket per gradient takes ([0-9]+) % more\)", text)
            self.assertEqual(alone is None, best == "0", text)
            if alone:
                self.near(alone[1], 100 * (of[0] / min(of.values()) - 1), 0, text)

    def worlds(self, found, known):
        text = paper.worlds_sentence(found)
        for run, (times,) in self.said_of(text, r"([0-9.]+) times as long", known).items():
            self.near(times, known[run][4] / known[run][1], 2, text)
            self.assertTrue(text.startswith("With 4 ranks"), text)

    def skips(self, found, known):
        text = paper.skip_sentence(found)
        for run, (percent, longer) in self.said_of(text, r"(-?[0-9]+) %( \(it takes longer\))?", known).items():
            self.near(percent, 100 * (1 - known[run][8] / known[run][1]), 0, text)
            self.assertEqual(bool(longer), percent.startswith("-"), text)

    def test_paper_parts(self):
        """The share of the step that overlap saves, and the difference of the losses where synchronisations are
        skipped."""
        self.each_seed(self.some_paper_parts)

    def some_paper_parts(self, draw):
        parts = ("forward_ms", "backward_ms", "communication_ms", "optimizer_ms", "rest_ms")
        of = {link: [([draw.choice((1, 2, 4)) for _ in parts], draw.choice((6, 8, 9)), draw.random() < 0.2) for _ in range(3)] for link in ("paper-rdma", "10gbe")}
        losses = {(batch, every): draw.choice((0.1, 0.15, 0.3)) for batch in ("8", "256") for every in ("1", "2", "8")}
        with Made() as made:
            made.csv("breakdown.csv", ["model", "link", "round", "disturbed", *parts, "overlapped_ms"],
                     *(["mlp", link, turn, int(bad), *ms, overlapped] for link, rounds in of.items() for turn, (ms, overlapped, bad) in enumerate(rounds)))
            made.csv("convergence.csv", ["model", "batch", "every", "iteration", "loss"],
                     *(["mlp", *key, at, loss] for key, last in losses.items() for at, loss in ((40, 2), (80, last))))
            table = paper.breakdown_table(made.results.rows("breakdown.csv"))
            loss = paper.convergence_sentence(paper.convergence_table(made.results.rows("convergence.csv")))
        known = {}
        for link, rounds in of.items():
            rounds, lost = counted(rounds, lambda one: one[2])
            if not lost and not are_apart([sum(ms) for ms, _, _ in rounds]):
                known[f"mlp {link}"] = median([overlapped / sum(ms) for ms, overlapped, _ in rounds])
        text = paper.breakdown_sentence(table)
        for run, (percent, longer) in self.said_of(text, r"(-?[0-9]+) %( \(it takes longer\))?", known).items():
            self.assertAlmostEqual(float(percent), 100 * (1 - known[run]), delta=0.56, msg=text)
            self.assertEqual(bool(longer), percent.startswith("-"), text)
        for batch in ("8", "256"):
            said = re.search(r"([-+][0-9.]+) \(mlp, batch " + batch + r"\)", loss)
            self.near(said[1], max(losses[batch, every] for every in ("2", "8")) - losses[batch, "1"], 3, loss)

    # ---- published steps ------------------------------------------------------------------------------------------

    def test_published(self):
        self.each_seed(self.some_published)

    def some_published(self, draw):
        kinds = [("9", "message"), ("9", "both"), ("7", "message"), ("7", "call")]
        points = {(run, *kind): [(gpus, *(draw.choice((0.9, 1, 1.1, 1.14, 1.2, 0.7, 1.27, 1.5)) for _ in range(2))) for gpus in (2, 4, 8)] for run in "AB" for kind in kinds}
        with Made() as made:
            made.csv("fitted.csv", ["run", "figure", "cost", "at_its_limit"], *([*key, ""] for key in points))
            made.csv("published.csv", ["run", "figure", "cost", "gpus", "bucket_mb", "paper_s", "fitted_s", "held_out_s"],
                     *([*key, gpus, 25 * gpus, 1, fitted, held] for key, of in points.items() for gpus, fitted, held in of))
            found = published.fits(made.results)
        worst = {key: [max(abs(one[k] - 1) for one in of) for k in (1, 2)] for key, of in points.items()}
        for fit in found:
            text, key = published.fit_sentence(fit), (fit.run, fit.figure, fit.cost)
            near, off, held, verb, where, held_off = re.search(
                r"fitted, ([0-9]) of 3 points (?:is|are) within 15 % \(largest error ([0-9]+) %\); held out, ([0-9]) (is|are) \(largest error, (.*): ([0-9]+) %\)", text).groups()
            self.assertEqual([int(near), int(held)], [sum(abs(one[k] - 1) <= 0.15 for one in points[key]) for k in (1, 2)], text)
            self.assertEqual(verb == "is", held == "1", text)
            for number, value in zip((off, held_off), worst[key]):
                self.near(number, 100 * value, 0, text)
            at = next(one for one in points[key] if where == (f"{one[0]} GPUs" if fit.figure == "9" else f"buckets of {25 * one[0]} MB"))
            self.assertAlmostEqual(abs(at[2] - 1), worst[key][1], msg=text)
        self.costs(published.call_sentence([fit for fit in found if fit.figure == "9"]), published.sweep_sentence([fit for fit in found if fit.figure == "7"]), worst)

    def costs(self, calls, sweep, worst):
        better, worse = (sum(sign * (worst[run, "9", "message"][1] - worst[run, "9", "both"][1]) > 0.01 for run in "AB") for sign in (1, -1))
        self.assertIn(f"falls by more than one percentage point in {better} run{'' if better == 1 else 's'} and rises in {worse}: ", calls)
        changes = re.findall(r"([AB]) ([0-9.]+) -> ([0-9.]+) %", calls)
        self.assertEqual([run for run, _, _ in changes], ["A", "B"], calls)
        for run, before, after in changes:
            self.near(before, 100 * worst[run, "9", "message"][1], 1, calls)
            self.near(after, 100 * worst[run, "9", "both"][1], 1, calls)
        same = [run for run in "AB" if abs(worst[run, "7", "message"][0] - worst[run, "7", "call"][0]) < 0.01]
        self.assertIn(f"the two costs fit {'all runs' if len(same) == 2 else same[0] if same else 'no run'} equally well", sweep)


if __name__ == "__main__":
    unittest.main()
