"""The section of bench/model/published.sh: the model beside the steps that the DDP paper published.

A fit of a run's points has an error at each of them: of the step that it gives, as a share of the published one. Held out, a point is
predicted from the others. With the cost "message" an all-reduce takes so long for each of its messages besides their bytes, with "call"
so long for itself, with "both" for either.
"""

from . import section
from .results import Results, unique
from .text import listed, markdown_table, plural, signed

NEAR = 15 # percent
COSTS = {"message": "for each message", "call": "for each call", "both": "for both"}
ABOUT = """Fitted are the width of a GPU's link, what an all-reduce costs besides its bytes, and how many times as long a GPU computes
beside others. *Held out* is what the fit to a run's other points says of a point. The paper's cluster was shared, and its points are
medians of single runs: BERT over NCCL took longer on 16 GPUs than on 32, which no such model does. Figure 7 was measured apart from
figure 9, and its steps are shorter: where computing takes less than once as long, it computed less than the profile of figure 9.
Points that are farther than 15 % off are **bold**."""


def error(row, column):
    return 100 * (row.number(column) / row.number("paper_s") - 1)


class Fit:
    """One fit: a run of a figure, with a kind of cost."""

    def __init__(self, numbers, points):
        self.run, self.figure, self.cost = numbers["run"], numbers["figure"], numbers["cost"]
        self.numbers = numbers
        self.points = [row for row in points if (row["run"], row["figure"], row["cost"]) == (self.run, self.figure, self.cost)]
        self.limit = numbers["at_its_limit"]

    def farthest(self, column):
        return max(self.points, key=lambda row: abs(error(row, column)))

    def worst(self, column):
        return abs(error(self.farthest(column), column))

    def near(self, column):
        return sum(abs(error(row, column)) <= NEAR for row in self.points)

    @property
    def words(self):
        costs = [f"{self.numbers.number(column):.0f} us for each {name}" for column, name in (("latency_us", "message"), ("call_us", "all-reduce"))
                 if self.numbers.number(column)]
        return (f"{self.run}, figure {self.figure}: {self.numbers.number('gbit'):.1f} Gbit/s, {' and '.join(costs)}, "
                f"computing takes {self.numbers.number('slowdown'):.2f} times as long")


def place(row):
    """What tells the points of a figure apart."""
    return f"{row['gpus']} GPUs" if row["figure"] == "9" else f"buckets of {float(row['bucket_mb']):g} MB"


def fits(results):
    points = results.rows("published.csv")
    return [Fit(row, points) for row in results.rows("fitted.csv")]


def fit_sentence(fit):
    far = fit.farthest("held_out_s")
    return (f"{fit.run}, figure {fit.figure}: fitted, {fit.near('fitted_s')} of {len(fit.points)} points are within {NEAR} % (the farthest "
            f"{fit.worst('fitted_s'):.0f} % off); held out, {fit.near('held_out_s')} are (the farthest, {place(far)}, "
            f"{fit.worst('held_out_s'):.0f} % off).")


def call_sentence(found):
    """What a cost of each call adds in figure 9, judged by the points that are held out."""
    before = {fit.run: fit.worst("held_out_s") for fit in found if fit.cost == "message"}
    after = {fit.run: fit.worst("held_out_s") for fit in found if fit.cost == "both"}
    better = [run for run in after if after[run] < before[run] - 1]
    worse = [run for run in after if after[run] > before[run] + 1]
    changes = ", ".join(f"{run} {before[run]:.0f} -> {after[run]:.0f} %" for run in after)
    verdict = ("it predicts all runs better" if len(better) == len(after) else "it predicts none better" if not better else
               f"it predicts {plural(len(better), 'run')} better and {len(worse)} worse")
    return f"With a cost of each call besides, held out in figure 9, {verdict} (the farthest point: {changes})."


def sweep_sentence(found):
    """Figure 7 has one number of GPUs, on which a cost for each message and one for each call may be the same."""
    apart = {}
    for fit in found:
        apart.setdefault(fit.run, []).append(fit.worst("fitted_s"))
    same = [run for run, errors in apart.items() if max(errors) - min(errors) < 1]
    which = "all runs" if len(same) == len(apart) else "no run" if not same else ", ".join(same)
    return (f"In figure 7 (16 GPUs) the two costs fit {which} equally well: one number of GPUs cannot tell them apart. "
            "They differ on 32, where they predict what the second table says.")


def limits(fit):
    names = fit.limit.split()
    return (f"{listed(names)} lies where plausible values end, so the points do not determine it." if len(names) == 1 else
            f"{listed(names)} lie where plausible values end, so the points do not determine them.")


def tables(found, predicted):
    rows = [["run", "figure", "GPUs", "MB", "paper, s", "cost", "fitted, s", "off, %", "held out, s", "off, %"]]
    for fit in found:
        for row in fit.points:
            off = [signed(error(row, column), 1) for column in ("fitted_s", "held_out_s")]
            bold = [f"**{text}**" if abs(float(text)) > NEAR else text for text in off]
            mib = "" if fit.figure == "9" else f"{row.number('bucket_mb'):g}"
            rows.append([fit.run, fit.figure, row["gpus"], mib, row["paper_s"], COSTS[fit.cost], f"{row.number('fitted_s'):.3f}", bold[0],
                         f"{row.number('held_out_s'):.3f}", bold[1]])
    seconds = {(row["run"], row["bucket_mb"], row["cost"]): row.number("seconds") for row in predicted}
    ahead = [["run", "MB", "for each message, s", "for each call, s"]]
    ahead += [[run, mib, f"{seconds[run, mib, 'message']:.3f}", f"{seconds[run, mib, 'call']:.3f}"]
              for run, mib in unique((row["run"], row["bucket_mb"]) for row in predicted)]
    return rows, ahead


def write(folder):
    results = Results(folder)
    found = fits(results)
    worlds, sweeps = ([fit for fit in found if fit.figure == figure] for figure in "97")
    rows, ahead = tables(found, results.rows("predicted.csv"))
    said = [fit_sentence(fit) for fit in found if fit.cost == "message"]
    said += [call_sentence(worlds), sweep_sentence(sweeps)]
    said += [f"{fit.run}, figure {fit.figure}, {COSTS[fit.cost]}: {limits(fit)}"
             for fit in found if fit.limit]
    section.finish(results, "published", ["## The model beside published steps", "", "\n\n".join(said), "", ABOUT, "", markdown_table(rows), "",
                                          "What the fits of figure 7 predict for the same buckets on 32 GPUs:", "", markdown_table(ahead), "",
                                          *[f"- {fit.words}" for fit in found], "",
                                          section.numbers(results, "published.csv", "fitted.csv", "predicted.csv")])
    print("\n".join(said))
