"""The section of bench/model/published.sh: the model beside the steps that the DDP paper published.

The error of a fit at a point is that of the step, as a share of the published step. A held-out point is predicted by a fit to the others.
Besides the time of its bytes, an all-reduce has a fixed cost: with "message" per message, with "call" per call, with "both" both.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import section
from .results import Results, read_csv, scaled, unique, write_csv
from .text import are, markdown_table, plural, signed

PAPER = Path(__file__).resolve().parent.parent / "paper"
# The paper's runs: the network, and how figure 6 divides its step on one GPU: forward, backward, optimizer.
RUNS = {"ResNet50 NCCL": ("resnet50", 0.15, 0.39, 0.02), "ResNet50 Gloo": ("resnet50", 0.12, 0.28, 0.01),
        "BERT NCCL": ("bert", 0.09, 0.41, 0.02), "BERT Gloo": ("bert", 0.06, 0.25, 0.01)}
NEAR = 15  # percent
COSTS = {"message": "per message", "call": "per call", "both": "both"}
ABOUT = """Fitted are the bandwidth of a GPU's link, an all-reduce's fixed cost, and the slowdown of a GPU's computation beside other GPUs.
*Held out* is a point's prediction by the fit to the run's other points. The paper's cluster was shared, and its points are medians of
single runs: BERT over NCCL took longer on 16 GPUs than on 32, which no such model predicts. Figure 7 was measured separately from
figure 9, and its steps are shorter: a slowdown below 1 means less computation than in the profile of figure 9. A parameter at the end
of its plausible range is not determined by the points. Errors above 15 % are **bold**."""


# ---- profiles, and fits to them -----------------------------------------------------------------------------------


def resnet50():
    """(count, work) of each tensor in the order of forward; work in multiplications of a sample."""
    tensors = []

    def conv(outputs, inputs, size, side):
        count = outputs * inputs * size * size
        tensors.extend([(count, count * side * side), (outputs, 0), (outputs, 0)])

    conv(64, 3, 7, 112)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        planes, side = 64 << stage, 56 >> stage
        for block in range(blocks):
            conv(planes, inputs, 1, side if block or not stage else 2 * side)
            conv(planes, planes, 3, side)
            conv(4 * planes, planes, 1, side)
            if block == 0:
                conv(4 * planes, inputs, 1, side)
            inputs = 4 * planes
    return [*tensors, (1000 * 2048, 1000 * 2048), (1000, 0)]


def bert():
    """(count, work) of each tensor of BERT-large: 24 layers of 1024, a vocabulary of 30,522."""
    def linear(outputs, inputs):
        return [(outputs * inputs, outputs * inputs), (outputs, 0)]

    norm = [(1024, 0)] * 2
    layer = 4 * linear(1024, 1024) + norm + linear(4096, 1024) + linear(1024, 4096) + norm
    return [(30522 * 1024, 0), (512 * 1024, 0), (2 * 1024, 0), *norm, *24 * layer, *linear(1024, 1024)]


def profile(name, tensors, seconds, parts):
    """A profile of a step of `seconds`, divided in the proportion `parts`. A gradient is ready when backward's work down to its layer is done."""
    forward, backward, optimizer = (seconds * part / sum(parts) for part in parts)
    done, all_work, ready = 0, sum(work for _, work in tensors), []
    for count, work in reversed(tensors):
        done += work
        ready.append({"bytes": 4 * count, "ready": done / all_work})
    return {"name": name, "rows": [1, 2], "forward_s": [forward, 0], "loss_s": [0, 0], "backward_s": [backward, 0], "optimizer_s": optimizer,
            "sample_bytes": 0, "output_bytes": 0, "messages": 1, "tensors": ready}


def fit(programs, stem, figure, cost):
    """Runs bench_fit on a run's points of a figure: (the numbers of fitted.csv, a row for each point, fitted and held out)."""
    lines = subprocess.run([f"{programs}/bench_fit", "--profile", f"{stem}.json", "--points", f"{stem}-{figure}.points", "--cost", cost],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    numbers = [word.partition("=") for word in lines[0].split()]
    limits = " ".join(value for key, _, value in numbers if key == "at_its_limit")
    points = [(gpus, mib, paper, *rest) for gpus, paper, mib, *rest in (line.split(",") for line in lines[2:])]
    return [value for key, _, value in numbers if key != "at_its_limit"] + [limits], points


def predict(programs, stem, numbers, mib):
    """DDP's step on 32 GPUs in seconds, by the numbers of a fit."""
    gbit, latency, call, slowdown = numbers[:4]
    rows = scaled(programs, f"{stem}.json", "--rows", 1, "--algorithm", "hierarchical", "--node-size", 8, "--gbit", gbit, "--inside-gbit", gbit,
                  "--latency-us", latency, "--inside-latency-us", latency, "--call-us", call, "--straggler", slowdown, "--devices", 32,
                  "--bucket-cap-mb", mib)
    return f"{next(row.number('step') for row in rows if row['strategy'] == 'ddp') / 1000:.6g}"


def fit_run(folder, programs, run):
    """Rows of fitted.csv, published.csv and predicted.csv: figure 9 by messages and by both costs, figure 7 by either."""
    stem, (network, *parts) = folder / run.replace(" ", "-"), RUNS[run]
    worlds, sweep = ([row for row in read_csv(PAPER / f"figure{figure}.csv") if row["run"] == run] for figure in (9, 7))
    made = profile(stem.name, {"resnet50": resnet50, "bert": bert}[network](), worlds[0].number("seconds"), parts)
    Path(f"{stem}.json").write_text(json.dumps(made), encoding="utf-8")
    Path(f"{stem}-9.points").write_text("".join(f"{row['gpus']},{row['seconds']}\n" for row in worlds[1:]), encoding="utf-8")
    Path(f"{stem}-7.points").write_text("".join(f"16,{row['seconds']},{row['bucket_mb']}\n" for row in sweep), encoding="utf-8")
    fitted, published, predicted = [], [], []
    for figure, cost in (("9", "message"), ("9", "both"), ("7", "message"), ("7", "call")):
        numbers, points = fit(programs, stem, figure, cost)
        fitted.append([run, figure, cost, *numbers])
        published += [[run, figure, cost, *point] for point in points]
        predicted += [[run, 32, mib, cost, predict(programs, stem, numbers, mib)] for _, mib, *_ in points if figure == "7"]
    return fitted, published, predicted


def collect(folder, programs):
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda run: fit_run(folder, programs, run), RUNS))
    for i, (name, head) in enumerate((("fitted", "run,figure,cost,gbit,latency_us,call_us,slowdown,largest_error,at_its_limit"),
                                      ("published", "run,figure,cost,gpus,bucket_mb,paper_s,fitted_s,held_out_s"),
                                      ("predicted", "run,gpus,bucket_mb,cost,seconds"))):
        write_csv(folder / f"{name}.csv", head.split(","), [row for part in parts for row in part[i]])


# ---- tables and sentences ------------------------------------------------------------------------------------------


def error(row, column):
    return 100 * (row.number(column) / row.number("paper_s") - 1)


class Fit:
    """One fit: a run of a figure, with a kind of cost."""

    def __init__(self, numbers, points):
        self.run, self.figure, self.cost = numbers["run"], numbers["figure"], numbers["cost"]
        self.numbers = numbers
        self.points = [row for row in points if (row["run"], row["figure"], row["cost"]) == (self.run, self.figure, self.cost)]

    def farthest(self, column):
        return max(self.points, key=lambda row: abs(error(row, column)))

    def worst(self, column):
        return abs(error(self.farthest(column), column))

    def near(self, column):
        return sum(abs(error(row, column)) <= NEAR for row in self.points)


def place(row):
    """The name of a row's point in its figure."""
    return f"{row['gpus']} GPUs" if row["figure"] == "9" else f"buckets of {float(row['bucket_mb']):g} MB"


def fits(results):
    points = results.rows("published.csv")
    return [Fit(row, points) for row in results.rows("fitted.csv")]


def fit_sentence(fit):
    far, near, held = fit.farthest("held_out_s"), fit.near("fitted_s"), fit.near("held_out_s")
    return (f"{fit.run}, figure {fit.figure}: fitted, {near} of {plural(len(fit.points), 'point')} {are(near)} within {NEAR} % (largest error "
            f"{fit.worst('fitted_s'):.0f} %); held out, {held} {are(held)} (largest error, {place(far)}: "
            f"{fit.worst('held_out_s'):.0f} %).")


def call_sentence(found):
    """How much a cost per call improves the fit of figure 9, judged by held-out points."""
    before = {fit.run: fit.worst("held_out_s") for fit in found if fit.cost == "message"}
    after = {fit.run: fit.worst("held_out_s") for fit in found if fit.cost == "both"}
    better = [run for run in after if after[run] < before[run] - 1]
    worse = [run for run in after if after[run] > before[run] + 1]
    changes = ", ".join(f"{run} {before[run]:.1f} -> {after[run]:.1f} %" for run in after)
    return (f"With a cost per call as well, the largest held-out error of figure 9 falls by more than one percentage point in "
            f"{plural(len(better), 'run')} and rises in {len(worse)}: {changes}.")


def sweep_sentence(found):
    """The fits of figure 7. With its one number of GPUs, a cost per message and a cost per call may give the same fit."""
    apart = {}
    for fit in found:
        apart.setdefault(fit.run, []).append(fit.worst("fitted_s"))
    same = [run for run, errors in apart.items() if max(errors) - min(errors) < 1]
    which = "all runs" if len(same) == len(apart) else "no run" if not same else ", ".join(same)
    why = ": one number of GPUs does not distinguish them" if same else ""
    return (f"In figure 7 (16 GPUs) the two costs fit {which} equally well, within one percentage point{why}. "
            "The second table has their predictions for 32.")


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
    ahead = [["run", "MB", "per message, s", "per call, s"]]
    ahead += [[run, mib, f"{seconds[run, mib, 'message']:.3f}", f"{seconds[run, mib, 'call']:.3f}"]
              for run, mib in unique((row["run"], row["bucket_mb"]) for row in predicted)]
    return rows, ahead


def fitted_table(found):
    """The numbers of each fit. A number at the end of its plausible range is not determined by the points."""
    return [["run", "figure", "cost", "Gbit/s", "us per message", "us per call", "slowdown", "not determined"]] + [
        [fit.run, fit.figure, COSTS[fit.cost], *(f"{fit.numbers.number(name):.{digits}f}" for name, digits in
         (("gbit", 1), ("latency_us", 0), ("call_us", 0), ("slowdown", 2))), fit.numbers["at_its_limit"] or "-"] for fit in found]


def write(folder, programs):
    results = Results(folder)
    collect(results.folder, programs)
    found = fits(results)
    worlds, sweeps = ([fit for fit in found if fit.figure == figure] for figure in "97")
    rows, ahead = tables(found, results.rows("predicted.csv"))
    said = [fit_sentence(fit) for fit in found if fit.cost == "message"]
    said += [call_sentence(worlds), sweep_sentence(sweeps)]
    section.finish(results, "published", "## The model beside published steps", *said, ABOUT, markdown_table(rows),
                   "Predictions of figure 7's fits for the same buckets on 32 GPUs:", markdown_table(ahead),
                   "The fitted numbers:", markdown_table(fitted_table(found)),
                   section.numbers(results, "published.csv", "fitted.csv", "predicted.csv"))
    print("\n".join(said))
