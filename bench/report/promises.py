"""The section of bench/promises.sh: the price of each of DDP's promises, and the messages and bytes of a step beside their
formulas.

A price is the median over the rounds of the difference to `plain` in the same round, with its quartiles. A disturbed row is marked, and
is in no sentence.
"""

import json
import math
import re

from . import section
from .results import Results, are_far_apart, median, network_name, quartiles, settled, unique, write_csv
from .text import NOTHING, QUICK, folded, markdown_table, terminal_table
from .traces import argument, read_events

FIRST = 5  # the first step that counts
ABOUT = """Two ranks, each on its own cores. A price is the median over the rounds of the difference to `plain` in the same
round. no_sync-4 accumulates the gradients of four parts of the batch and communicates once. A probe before and after
each run measured the cores' rate: runs beside another rate than usual were repeated for up to {patience} seconds,
and left out if the rate did not return. A row is disturbed if more than half of its runs are, or if its times lie
more than 25 % apart."""


# ---- measurements and counts ------------------------------------------------------------------------------------------


def price_rows(results):
    """Rows of prices.csv: the median over a run's steps, in ms."""
    rows = []
    for turn in results.rounds:
        for model in results.words("models"):
            for name in results.words(f"promises-{model}"):
                run = f"price-{model}-{name}-{turn}"
                rows.append([model, name, turn, int(results.is_disturbed(run)), f"{results.median_ms(run, FIRST):.5f}"])
    return rows


def of_last_step(events):
    """The bytes of each of rank 0's collectives in the last step."""
    mine = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
    before, last = sorted(event["ts"] + event["dur"] for event in mine if event["name"] == "optimizer")[-2:]
    return [argument(event, "bytes") for event in mine if argument(event, "bytes") >= 0 and before <= event["ts"] < last]


def tensor_shapes(path):
    """The shapes of the tensors in a safetensors file."""
    with open(path, "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return [tensor["shape"] for name, tensor in head.items() if name != "__metadata__"]


def formula(name, shapes, buckets, channels):
    """(messages, bytes) of a promise's step, from the gradients' shapes and the channels of each batch norm.

    A gradient is padded to whole cache lines. PowerSGD (rank 1) sends n + m numbers for an n x m matrix if these are less than half of
    it, and other gradients unchanged. Rank 0 broadcasts the statistics of each batch norm: mean and variance per channel, and an int64
    counter. A synchronized layer of C channels gathers mean, deviation and count in forward (2 C + 1 numbers) and reduces two sums in
    backward (2 C). fsdp gathers a unit's weights twice and reduces its gradients once; a message is a rank's shard, half of the rows,
    rounded up. (An all-reduce moves its bytes twice: two gathers and a reduction of all weights are 1.5 times DDP's.)"""
    messages, size = buckets, sum((4 * math.prod(shape) + 63) // 64 * 64 for shape in shapes)
    if name == "fsdp":
        return 3 * buckets, 3 * sum(4 * ((shape[0] + 1) // 2) * math.prod(shape[1:]) for shape in shapes)
    if name == "noop":
        messages = size = 0
    if name in ("fp16", "bf16"):
        size //= 2
    if name == "powersgd":
        thin = [shape[0] + math.prod(shape[1:]) for shape in shapes]
        messages, size = 3 * buckets, sum(4 * (less if len(shape) > 1 and 2 * less < math.prod(shape) else math.prod(shape))
                                          for shape, less in zip(shapes, thin))
    if name == "find-unused":
        messages, size = messages + 1, size + 4 * len(shapes)
    if name == "sync-batch-norm":
        messages, size = messages + 2 * len(channels), size + sum(4 * (2 * one + 1) + 4 * 2 * one for one in channels)
    if channels and name != "no-buffers":
        messages, size = messages + 1, size + sum(2 * 4 * one + 8 for one in channels)
    return messages, size


def count_rows(results):
    """Rows of counts.csv."""
    rows = []
    for model in results.words("models"):
        summary = "\n".join(results.lines(f"runs/summary-{model}/output.txt"))
        channels = [int(count) for count in re.findall(r" BatchNorm .*weight \[(\d+)\]", summary)]
        for name in results.words(f"promises-{model}"):
            folder = results.folder / "runs" / f"count-{model}-{name}"
            events = read_events(folder / "trace.json")
            buckets = len({argument(event, "bucket") for event in events} - {-1})
            counted = of_last_step(events)
            found, wanted = (len(counted), sum(counted)), formula(name, tensor_shapes(folder / "gradients"), buckets, channels)
            rows.append([model, name, *found, *wanted, int(found == wanted)])
    return rows


# ---- tables and sentences ---------------------------------------------------------------------------------------------


class Prices:
    """prices.csv: milliseconds by "set/name" and round."""

    def __init__(self, rows):
        self.ms = {(f"{row['set']}/{row['name']}", row["round"]): row.number("ms") for row in rows}
        self.bad = {(f"{row['set']}/{row['name']}", row["round"]) for row in rows if row.is_true("disturbed")}
        self.runs, self.rounds = unique(run for run, _ in self.ms), unique(turn for _, turn in self.ms)

    def counted(self, *runs):
        """(rounds that count for a row of these runs, whether the row is disturbed). A row is disturbed if most of its rounds are (then all
        rounds are returned), or if one run's times are far apart."""
        here, lost = settled(self.rounds, lambda turn: any((run, turn) in self.bad for run in runs))
        return here, lost or any(are_far_apart([self.ms.get((run, turn), 0.0) for turn in here]) for run in runs)

    def times(self, run, rounds):
        return [self.ms[run, turn] for turn in rounds]

    def price(self, name):
        """(name, median ms, price (low, median, high), disturbed) of each run of a set."""
        runs, rows = [run for run in self.runs if run.startswith(name + "/")], []
        for run in runs:
            rounds, lost = self.counted(runs[0], run)
            mine, first = self.times(run, rounds), self.times(runs[0], rounds)
            rows.append((run.partition("/")[2], median(mine), quartiles([a - b for a, b in zip(mine, first)]), lost))
        return rows


def noop_sentence(prices):
    """The ratio of DDP's step to its step without communication, which an infinitely fast network would reach."""
    runs = "mlp/plain", "mlp/noop"
    rounds, lost = prices.counted(*runs)
    if lost:
        return NOTHING
    ratio = median([plain / noop for plain, noop in zip(*(prices.times(run, rounds) for run in runs))])
    return f"DDP's step takes {ratio:.3f} times as long as without communication (aim: at most 1.06)."


def promise_table(prices, counts, model):
    """The table of each promise's price, and of its counted messages and bytes beside the formula's."""
    table = [["promise", "step ms", "price ms", "quartiles", "messages", "bytes", "formula"]]
    for i, (name, ms, (low, price, high), lost) in enumerate(prices.price(model)):
        count = next((row for row in counts if (row["model"], row["promise"]) == (model, name)), None)
        counted = [] if count is None else [count["messages"], count["bytes"], "same" if count.is_true("held") else
                                            f"{count['formula_messages']}/{count['formula_bytes']}"]
        table.append([name, f"{ms:.2f}", "disturbed" if lost else f"{price:+.2f}" if i else "-", f"{low:+.2f}..{high:+.2f}" if i else "-",
                      *(counted or ["-"] * 3)])
    return table


def bars(prices, names):
    """(label, price, low, high, disturbed) of each bar of the figure. names: {model: the network's name}."""
    return [(f"{names[model]}: {name}", price, low, high, lost) for model in names
            for name, _, (low, price, high), lost in prices.price(model)[1:]]


def promise_sentence(drawn):
    known = [one for one in drawn if not one[4]]
    if not known:
        return NOTHING
    top, low = max(known, key=lambda one: one[1]), min(known, key=lambda one: one[1])
    return f"The highest price is {top[0]}'s, {top[1]:+.2f} ms per step, the lowest {low[0]}'s, {low[1]:+.2f} ms."


def count_sentence(counts):
    return f"A step's messages and bytes equal the formula's in {sum(row.is_true('held') for row in counts)} of {len(counts)} rows."


def write(folder):
    results = Results(folder)
    write_csv(results.folder / "prices.csv", ["set", "name", "round", "disturbed", "ms"], price_rows(results))
    write_csv(results.folder / "counts.csv", ["model", "promise", "messages", "bytes", "formula_messages", "formula_bytes", "held"],
              count_rows(results))
    show(results)


def show(results):
    """Draws the figures, and writes the tables and the section, from the CSV files."""
    models = results.words("models")
    prices, counts = Prices(results.rows("prices.csv")), results.rows("counts.csv")
    names = {model: network_name(model, results.fact("hidden")) for model in models}
    drawn = bars(prices, names)
    write_csv(results.plots / "promises.csv", ["row", "label", "price", "low", "high", "disturbed"],
              [(i + 1, label, *(f"{ms:.4f}" for ms in times), int(lost)) for i, (label, *times, lost) in enumerate(drawn)])
    promises = {model: promise_table(prices, counts, model) for model in models}
    said = {"count": count_sentence(counts), "promise": promise_sentence(drawn), "noop": noop_sentence(prices)}
    if results.is_quick:  # its times mean nothing
        said.update(promise="", noop="")
    tables = [part for model in models for part in (names[model], markdown_table(promises[model]))]
    section.finish(results, "promises", "## What each promise costs", QUICK if results.is_quick else "",
                   section.draw(results.folder, "promises", said["promise"]), said["promise"], *tables, ABOUT.format(**results.facts),
                   said["count"], said["noop"], section.numbers(results, "prices.csv", "counts.csv"))
    print("\n\n".join([*(f"{names[model]}\n\n{terminal_table(table)}" for model, table in promises.items()),
                       "\n".join(folded(line) for line in said.values() if line)]))
