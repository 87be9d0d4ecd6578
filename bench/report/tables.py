"""The tables of a comparison, as rows whose first is the head; the same rows fill the terminal and the report."""

from .look import NAMES
from .results import grouped
from .text import plural, short_number


def networks(results):
    """The table of networks: name, layers, size, and the parts of the report that use it."""
    used = {"speed": "speed, phases, memory", "curves": "loss", "equivalence": "bits", "timeline": "the step, overlap, buckets, the model"}
    found = {}
    for row in results.rows("networks.csv"):
        name = results.name(row["model"], row["part"])
        found.setdefault(name, (row, []))[1].append(used.get(row["part"], row["part"]))
    table = [["network", "hidden layers", "layers with parameters", "parameters", "MB of gradients", "used for"]]
    for name, (row, parts) in found.items():
        count = row.number("parameters")
        megabytes = f"{4 * count / 1e6:.{2 if count > 2500 else 4}f}"
        table.append([name, sizes_text(row["hidden"]), row["layers"], short_number(count), megabytes, "; ".join(parts)])
    return table


def sizes_text(hidden):
    """"8 x 512", "256, 128"."""
    sizes = hidden.split(";")
    return f"{len(sizes)} x {sizes[0]}" if len(sizes) > 1 and len(set(sizes)) == 1 else ", ".join(sizes) or "-"


def shown(strategy):
    """A strategy, or a run such as "mine:2", as a table has it."""
    return strategy.replace("mine", NAMES["mine"])


def speed(results):
    table = [["network", "strategy", "devices", "samples/s", "step ms", "p25-p75", "speed-up", "device 0 MB", "others MB", "moved MB/step"]]
    for row in results.rows("summary.csv"):
        one = results.row_of("single", row["model"], 1)
        times = ["-"] * 4  # the row is not timed
        if row.is_true("timed"):
            speed_up = "disturbed" if row.is_true("disturbed") else "-"
            if speed_up == "-" and one and not one.is_true("disturbed"):
                speed_up = f"{row.number('samples_per_s_p50') / one.number('samples_per_s_p50'):.2f}"
            times = [f"{row.number('samples_per_s_p50'):.0f}", f"{row.number('step_ms_p50'):.2f}",
                     f"{row.number('step_ms_p25'):.2f}-{row.number('step_ms_p75'):.2f}", speed_up]
        alone = row["world_size"] == "1"
        table.append([results.name(row["model"]), shown(row["strategy"]), row["world_size"], *times,
                      f"{row.number('peak_bytes_device0') / 1e6:.2f}", "-" if alone else f"{row.number('peak_bytes_other') / 1e6:.2f}",
                      f"{row.number('moved_bytes_per_step') / 1e6:.2f}"])
    return table


def far_from(losses, reference):
    """The largest distance of a loss from another run's at the same step."""
    most = max((abs(loss - other) for loss, other in zip(losses, reference)), default=0.0)
    return f"{most:.1e}" if most else "0"


def curves(comparison):
    """The table of the longer runs: accuracy, and the largest distance of the loss from one device's and from DP's."""
    results = comparison.results
    table = [["network", "strategy", "devices", "epochs", "last loss", "test accuracy", "best", "largest loss difference to one device", "to DP"]]
    for model in results.curve_models:
        losses = {run: [row[k + 1] for row in comparison.losses[model]] for k, run in enumerate(comparison.drawn_curves(model))}
        for (strategy, world), mine in losses.items():
            record = results.record(f"curve-{model}-{strategy}-{world}")
            last = "-" if record.get("final_loss") is None else f"{record['final_loss']:.3g}"
            shares = ["-" if record.get(key) is None else f"{100 * record[key]:.2f} %" for key in ("test_accuracy", "best_test_accuracy")]
            table.append([results.name(model, "curves"), shown(strategy), world, results.fact("epochs"), last, *shares,
                          "-" if strategy == "single" else far_from(mine, losses["single", "1"]),
                          far_from(mine, losses["dp", world]) if strategy not in ("single", "dp") else "-"])
    return table


def equivalence(results):
    """The table of compared pairs of runs."""
    table = [["network", "a", "b", "required", "tensors", "gradients ULP", "weights ULP", "optimizer ULP", "buffers ULP", "held"]]
    pairs = grouped(results.rows("equivalence.csv"), "model", "a", "b", "required")
    for (model, a, b, required), mine in pairs.items():
        worst = [max((row.number("max_ulp") for row in mine if row["what"] == what), default=None)
                 for what in ("gradient", "weight", "optimizer", "buffer")]
        broken = sum(not row.is_true("held") for row in mine)
        table.append([results.name(model, "equivalence"), a, shown(b), "same bits" if required == "bitwise" else "tolerance", str(len(mine)),
                      *("-" if ulp is None else f"{ulp:.0f}" for ulp in worst), f"NO: {broken} differ" if broken else "yes"])
    return table


# ---- disturbed runs ------------------------------------------------------------------------------------------------

def dropped(results):
    """The rows that were computed without some of their runs, because these were disturbed."""
    made = results.repeats
    return [f"{results.name(row['model'])}, {NAMES[row['strategy']]}"
            + (": " if row["strategy"] == "single" else f", {plural(row.whole('world_size'), 'device')}: ") +
            f"{row.whole('repeats')} of {made} kept"
            for row in results.rows("summary.csv") if row.is_true("timed") and row.number("repeats") < made]


def runs_text(results):
    lost = dropped(results)
    return (f"Every row: {plural(results.repeats, 'run')}"
            + (f", less the disturbed ones where these are at most half ({'; '.join(lost)})," if lost else ","))


def why_disturbed(row):
    """By the medians of its runs, or by the probes beside most of them (bench/compare/summarize.awk)."""
    spread = row.number("spread")
    return f"its runs lie {100 * spread:.0f} % apart" if spread > 0.25 else "the probes beside most of its runs measured another speed"


def disturbed(results):
    """A line for each disturbed configuration, with the evidence."""
    return [f"{results.name(row['model'])} {shown(row['strategy'])}:{row['world_size']} ({why_disturbed(row)})"
            for row in results.rows("summary.csv") if row.is_true("disturbed")]


def disturbed_lines(results):
    """The report's lines about disturbed configurations and dropped runs."""
    unsteady = disturbed(results)
    if unsteady:
        return [f"- **Disturbed.** Other work used the machine during these runs; no conclusion uses them: {', '.join(unsteady)}."]
    return [] if dropped(results) or results.lines("disturbed.txt") else ["- Nothing disturbed the machine noticeably."]


def batches(results):
    """"mlp-1024 300, convnet 300"."""
    return ", ".join(f"{results.name(row['model'])} {row['global_batch']}" for row in results.rows("summary.csv")
                     if row["strategy"] == "single")
