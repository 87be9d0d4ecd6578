"""The section of bench/ablation.sh: from DP to DDP, one ingredient at a time.

A link is named by its index in the fact `networks`. Rounds of a disturbed turn do not count. A rung is disturbed if most of its rounds are,
or if the quartiles of its step are more than a quarter of its median apart; then its saving and the next rung's are disturbed, too, and
in no sentence.
"""

from . import section
from .results import Results, median, quartiles, unique, write_csv
from .text import markdown_table

RUNG_OF = {"train_dp": "kept threads", "train_ddp": "overlap"}
LADDER = ["network", "link", "rung", "says", "devices", "ms_p25", "ms_p50", "ms_p75", "saved_ms_p25", "saved_ms_p50", "saved_ms_p75", "rounds",
          "disturbed", "weights"]
ABOUT = """Each ingredient is added to those above it. *saves* is the median, over the rounds that count, of the rung above minus
this one; a round takes all rungs in turn. The first rung starts new threads in each forward, as PyTorch's DataParallel
does; train_dp keeps its threads, so that its step is the second rung's. All rungs are compared with the first by their
weights' bytes. A turn is {rounds} rounds and both trainers, each run between two probes of all cores' rate; a run
beside which a probe measured another rate than usual was repeated for up to {patience} seconds, and its rounds do not
count if the rate did not return."""


def called(network):
    return "through memory" if network == "memory" else f"{network}, emulated"


class Rung:
    """A rung's step and its saving over the rung above, over the rounds that count."""

    def __init__(self, first, times, above, weights, disturbed):
        self.first, self.name, self.weights, self.rounds = first, first["rung"], weights, len(times)
        self.ms = quartiles(times)
        self.saved = quartiles([one - mine for one, mine in zip(above, times)]) if above else None
        self.disturbed = disturbed or self.ms[2] - self.ms[0] > self.ms[1] / 4


class Ladder:
    """All rungs over one link, and the trainers' steps with those of the corresponding rungs."""

    def __init__(self, results, n):
        self.results, self.n, self.network = results, n, called(results.words("networks")[n])
        turns = range(1, int(results.number("turns")) + 1)
        self.rounds = [(str(turn), results.is_disturbed(f"ladder-{n}-{turn}"), row) for turn in turns
                       for row in results.rows(f"runs/ladder-{n}-{turn}/rounds.csv")]
        self.trainers = [(results.is_disturbed(f"{program}-{n}-{turn}", f"ladder-{n}-{turn}"), program,
                          results.record(f"{program}-{n}-{turn}")["step_ms_p50"],
                          median([row.number("ms") for at, _, row in self.rounds if at == str(turn) and row["rung"] == RUNG_OF[program]]))
                         for turn in turns for program in RUNG_OF]
        bad = {(turn, row["round"]): disturbed for turn, disturbed, row in self.rounds}
        self.count, self.good = len(bad), sum(not disturbed for disturbed in bad.values())
        self.lost = 2 * self.good < self.count
        self.rungs = []
        above, unsure = [], False
        for name in unique(row["rung"] for _, _, row in self.rounds):
            mine = [(turn, row) for turn, _, row in self.rounds if row["rung"] == name]
            times = [row.number("ms") for turn, row in mine if self.lost or not bad[turn, row["round"]]]
            weights = next((row["weights"] for _, row in mine if row["weights"] != "equal"), "equal")
            rung = Rung(mine[0][1], times, above, weights, self.lost)
            above, unsure, rung.disturbed = times, rung.disturbed, rung.disturbed or unsure
            self.rungs.append(rung)

    def rows(self):
        return [[*(rung.first[key] for key in ("link", "rung", "says", "devices")), *(f"{ms:.6f}" for ms in rung.ms),
                 *(f"{ms:.6f}" for ms in rung.saved or ()), *["-"] * (0 if rung.saved else 3), rung.rounds, int(rung.disturbed),
                 rung.weights] for rung in self.rungs]

    def table(self):
        table = [["ingredient", "", "ms", "saves", "quartiles", "bits"]]
        for rung in self.rungs:
            saves, spread = (f"{rung.saved[1]:+.3f}", f"{rung.saved[0]:+.3f} to {rung.saved[2]:+.3f}") if rung.saved else ("", "")
            table.append([rung.name, rung.first["says"], f"{rung.ms[1]:.3f}", "disturbed" if rung.disturbed else saves,
                          "-" if rung.disturbed else spread, "equal" if rung.weights == "equal" else "DIFFER"])
        return table

    def lines(self):
        """The table for a terminal of 80 columns."""
        return "\n".join(f"{name:14} {says:40} {ms:>7} {saves:>9} {bits}" for name, says, ms, saves, _, bits in self.table())

    def rounds_sentence(self):
        if self.lost:
            return f"{self.count - self.good} of {self.count} rounds were disturbed: no conclusion."
        if self.good == self.count:
            return f"All {self.count} rounds count."
        return f"{self.good} of {self.count} rounds count; the others were disturbed."

    def trainer_sentence(self, program):
        """Whether a trainer's step is within 5 % of its rung's, by the median of the turns' ratios."""
        mine = [one for one in self.trainers if one[1] == program]
        ratios = [rung_ms / step_ms for disturbed, _, step_ms, rung_ms in mine if not disturbed]
        weights = f"weights {self.results.fact(f'weights-{self.n}-{program}', 'equal')}"
        if 2 * len(ratios) < len(mine) or not ratios:
            return f"{RUNG_OF[program]} beside {program}: disturbed, within 5 %: unknown; {weights}"
        times = median(ratios)
        return (f"{RUNG_OF[program]} takes {times:.3f} times {program}'s step, within 5 %: "
                f"{'yes' if 0.95 <= times <= 1.05 else 'no'}; {weights}")

    def sentence(self):
        """The rungs that save or cost more than 2 % of DP's step over this link."""
        names = [rung.name for rung in self.rungs]
        head = f"**{self.network}**: "
        dp, last = self.rungs[names.index("kept threads")], self.rungs[-1]
        if dp.disturbed or last.disturbed:
            return head + "disturbed by other work; no conclusion."
        sure = [rung for rung in self.rungs[names.index("kept threads") + 1:] if not rung.disturbed]
        saves, costs = (", ".join(f"{rung.name} {sign * rung.saved[1]:.1f}" for rung in sure if sign * rung.saved[1] > dp.ms[1] / 50)
                        or "no rung" for sign in (1, -1))
        untold = ", ".join(rung.name for rung in self.rungs if rung.disturbed)
        return (head + f"DataParallel takes {dp.ms[1]:.1f} ms a step ({self.rungs[0].ms[1]:.1f} with fresh threads), DistributedDataParallel "
                f"{last.ms[1]:.1f}. In ms, where a rung changes more than 2 % of DP's step: saved by {saves}; "
                f"added by {costs}."
                + (f" Disturbed: {untold}." if untold else ""))

    def bars(self):
        """Rows of the figure: each bar spans from a rung's step to the step of the rung above."""
        bars = []
        for rung in self.rungs:
            ms, saved = round(rung.ms[1], 6), round(rung.saved[1], 6) if rung.saved else 0.0  # as in ladder.csv
            kind = "disturbed" if rung.disturbed else "first" if not rung.saved else "takes" if saved < 0 else "saves"
            bars.append([rung.name, *((0.0, ms) if not rung.saved else (min(ms, ms + saved), max(ms, ms + saved))), saved, kind])
        last = self.rungs[-1]
        bars.append(["DDP", 0.0, last.ms[1], 0.0, "disturbed" if last.disturbed else "last"])
        return [[i + 1, name, *(f"{ms:.6f}" for ms in numbers), kind] for i, (name, *numbers, kind) in enumerate(bars)]


def write(folder):
    results = Results(folder)
    ladders = [Ladder(results, n) for n in range(len(results.words("networks")))]
    write_csv(results.folder / "ladder.csv", LADDER,
              [[one.network.replace(", ", " ").replace(",", " "), *row] for one in ladders for row in one.rows()])
    text = []
    for i, one in enumerate(ladders):
        write_csv(results.plots / f"bars-{i + 1}.csv", ["row", "rung", "low_ms", "high_ms", "saved_ms", "kind"], one.bars())
        said = [one.trainer_sentence(program) for program in RUNG_OF] + [one.rounds_sentence()]
        text += [f"### {one.network}", markdown_table(one.table()), "\n".join(f"- {line}" for line in said)]
        print("\n".join([*results.fact(f"about-{one.n}").splitlines(), one.lines(), *said, ""]))
    section.settings(results, panels=len(ladders), networks=" ".join(f"'{one.network}'" for one in ladders), rows=len(ladders[0].rungs) + 1)
    sentences = [one.sentence() for one in ladders]
    section.finish(results, "ladder", "## From DP to DDP, one ingredient at a time", section.draw(results.folder, "ladder", "\n".join(sentences)),
                   *sentences, section.numbers(results, "ladder.csv"), *text, ABOUT.format(**results.facts))
