"""A device's memory under each strategy, and a step's bytes, beside formulas: the part memory of bench/scaling.sh.

P parameters, R of them the root's and U a block's, on W devices, with AdamW: 4 bytes each for a weight and its gradient, 8 for the
optimizer's state. Activations, logits and the batch (A) are those of the dry run; FSDP's are DDP's.

    one device, DDP, DP's device 0    16 P + A
    ZeRO-1                            8 P + 8 P / W + A
    FSDP                              16 P / W + 8 R + 16 U + A

DDP's all-reduce moves 2 (W - 1) times 4 P bytes. FSDP gathers weights and reduces gradients, each (W - 1) times: 4 (3 P - R) bytes, as
the root is gathered once; 4 (2 P) where weights stay whole after the forward pass.
"""

import re

from .look import NAMES
from .results import grouped, median, settled
from .text import listed
from .traces import read_events

HEAD = ["model", "strategy", "world_size", "parameters", "root", "unit", "dry_bytes", "computed_bytes", "formula_bytes", "held"]
MOVED = ["strategy", "world_size", "bytes", "formula_bytes", "to_ddp", "held"]
SHARDED = ["round", "ddp_ms", "fsdp_ms", "fsdp_over_ddp", "link_ms", "computing_ms", "gathers_ms", "first_ms",
           "exposed_first_ms", "exposed_ms", "hidden", "hidden_later", "early_ms", "hidden_early", "disturbed"]
WITHIN = 0.03
FIRST = 5  # the first step that counts
FOUR = ("dp", "ddp", "zero1", "fsdp")


def parameters_of(lines):
    """(all, the root's, a block's) of a summary: a layer's line has its name first and its parameters last."""
    counts = {line.split()[0]: int(line.split()[-1]) for line in lines if re.match(r"[a-z_0-9.]+ +[A-Z]", line)}
    whole = sum(counts.values())
    blocks = sum(count for name, count in counts.items() if ".h." in name)
    return whole, whole - blocks, sum(count for name, count in counts.items() if ".h.0." in name)


def kinds_of(lines):
    """{kind: bytes} on the first device of a dry run, with "peak"."""
    found = {}
    for name, count in re.findall(r"^([a-z]+)_bytes=(\d+)", "\n".join(lines), re.M):
        found.setdefault(name, int(count))
    return found


def memory_formula(strategy, world, parameters, activations):
    whole, root, unit = parameters
    weights = {"zero1": 8 * whole + 8 * whole / world, "fsdp": 16 * whole / world + 8 * root + 16 * unit}
    return weights.get(strategy, 16 * whole) + activations


def moved_formula(strategy, world, parameters):
    whole, root, _ = parameters
    return 4 * (world - 1) * (3 * whole - root if strategy == "fsdp" else 2 * whole)


def is_near(counted, formula):
    return abs(counted - formula) <= WITHIN * formula


def memory_rows(results):
    """Rows of scaling-memory.csv. `held` is 1 if the dry run's bytes are near the formula's and equal those of the training run, if any."""
    rows = []
    for model in results.words("sizes"):
        parameters = parameters_of(results.lines(f"runs/summary-{model}/output.txt"))
        for world in (1, *map(int, results.words("counted"))):
            kinds = {strategy: kinds_of(results.lines(f"runs/hold-{model}-{strategy}-{world}-dry/output.txt"))
                     for strategy in (FOUR if world > 1 else ("single",))}
            for strategy, held in kinds.items():
                activations = sum(kinds["ddp" if strategy == "fsdp" else strategy][kind] for kind in ("batch", "logits", "activations"))
                formula = round(memory_formula(strategy, world, parameters, activations))
                computed = results.record(f"hold-{model}-{strategy}-{world}-trained").get("peak_bytes_device0", "")
                rows.append([model, strategy, world, *parameters, held["peak"], computed, formula,
                             int(computed in ("", held["peak"]) and is_near(held["peak"], formula))])
    return rows


def moved_rows(results):
    """Rows of scaling-traffic.csv."""
    rows, parameters = [], parameters_of(results.lines("runs/summary-gpt-small/output.txt"))
    for world in map(int, results.words("counted")):
        moved = {}
        for strategy in ("ddp", "fsdp", "fsdp-whole"):
            moved[strategy] = results.record(f"hold-gpt-small-{strategy}-{world}-trained")["moved_bytes_per_step"]
            formula = moved_formula(strategy, world, parameters)
            rows.append([strategy, world, round(moved[strategy]), formula, f"{moved[strategy] / moved['ddp']:.4f}",
                         int(is_near(moved[strategy], formula))])
    return rows


def gathers_of(events, first):
    """Rank 0's medians over the steps, in ms: computing; all gathers; the first two gathers (the root's and the first block's); waiting for
    these two; waiting for the others. A step begins with the optimizer, which may enqueue gathers of the next forward."""
    spans = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 0]
    begins, steps = sorted(begin for name, begin, _ in spans if name == "optimizer")[first - 1:], []
    for begin, end in zip(begins, begins[1:]):
        here = [span for span in spans if begin <= span[1] < end]
        gathers, waits = (sorted(span[1:] for span in here if span[0] == name) for name in ("all_gather", "exposed"))
        waited = [sum(max(0, min(stop, other_stop) - max(start, other)) for other, other_stop in waits) for start, stop in gathers]
        took = [stop - start for start, stop in gathers]
        computing = sum(stop - start for name, start, stop in here if name in ("forward", "backward", "loss"))
        steps.append((computing, sum(took), sum(took[:2]), sum(waited[:2]), sum(waited[2:])))
    return [median(of) / 1e3 for of in zip(*steps)]


def sharded_rows(results, first=FIRST):
    """Rows of scaling-sharded.csv, with hidden shares: hidden, of all gathers; hidden_later, of all but the first two; hidden_early, of all
    with --unshard-in-step."""
    rows = []
    for turn in range(1, int(results.number("sharded")) + 1):
        runs = [f"shard-{name}-{turn}" for name in ("ddp", "fsdp", "link", "early")]
        ddp, fsdp, link, early = (results.median_ms(run, first) for run in runs)
        of_link, of_early = (gathers_of(read_events(results.folder / "runs" / run / "trace.json"), first) for run in runs[2:])
        computing, gathers, two, exposed_two, exposed = of_link
        shares = [(whole - waited) / min(computes, whole) for computes, whole, waited in (
            (computing, gathers, exposed_two + exposed), (computing, gathers - two, exposed), (*of_early[:2], sum(of_early[3:])))]
        rows.append([turn, *(f"{value:.4f}" for value in (ddp, fsdp, fsdp / ddp, link, *of_link, *shares[:2], early, shares[2])),
                     int(results.is_disturbed(*runs))])
    return rows


# ---- tables and sentences --------------------------------------------------------------------------------------------

def amount(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"


def furthest(rows, column):
    """The largest distance from the formula, in per cent."""
    return 100 * max(abs(row.number(column) / row.number("formula_bytes") - 1) for row in rows)


def memory_sentence(rows):
    model, world = rows[-1]["model"], rows[-1]["world_size"]
    held = {row["strategy"]: row.number("dry_bytes") for row in rows if row["model"] == model and row["world_size"] in ("1", world)}
    said = listed([f"{NAMES[strategy]} {amount(count)}" for strategy, count in held.items()])
    near = sum(row.is_true("held") for row in rows)
    return (f"Device 0's memory for {model} on {world} devices: {said}. {near} of {len(rows)} rows are within 3 % of the formula "
            f"and took the dry run's bytes where they were trained; the largest error is {furthest(rows, 'dry_bytes'):.2f} %.")


def moved_sentence(rows):
    text = []
    for strategy, how in (("fsdp", "FSDP moves"), ("fsdp-whole", "without reshard")):
        of = [row for row in rows if row["strategy"] == strategy]
        ratios = [row.number("to_ddp") for row in of]
        formula = of[0].number("formula_bytes") / next(row.number("formula_bytes") for row in rows if row["strategy"] == "ddp")
        text.append(f"{how} {min(ratios):.3f} to {max(ratios):.3f} times DDP's bytes (formula {formula:.3f})")
    return f"gpt-small: {text[0]}, {text[1]}; at most {furthest(rows, 'bytes'):.2f} % from the formulas."


def memory_table(rows):
    """A row for each model and strategy, a column for each number of devices: the bytes, and their ratio to the formula."""
    worlds = sorted({row.whole("world_size") for row in rows})
    table = [["model", "strategy", *(f"{world} device{'s' * (world > 1)}" for world in worlds), "over formula"]]
    for (model, strategy), of in grouped(rows, "model", "strategy").items():
        mine = {row.whole("world_size"): row for row in of}
        ratios = [row.number("dry_bytes") / row.number("formula_bytes") for row in mine.values()]
        table.append([model, NAMES[strategy], *(amount(mine[world].number("dry_bytes")) if world in mine else "-" for world in worlds),
                      f"{min(ratios):.4f} to {max(ratios):.4f}"])
    return table


def moved_table(rows):
    return [["strategy", "devices", "bytes a step", "formula", "times DDP's"]] + [
        [{"fsdp-whole": "FSDP, no reshard"}.get(row["strategy"], NAMES.get(row["strategy"])), row["world_size"], row["bytes"], row["formula_bytes"],
         f"{row.number('to_ddp'):.3f}"] for row in rows]


def sharded_sentence(rows, gbit):
    """The sentence of medians over the undisturbed rounds, or, with a remark, over all rounds if fewer than half are undisturbed."""
    counted, lost = settled(rows, lambda row: row.is_true("disturbed"))
    ratio, hidden, later, gathers, first, computing, early = (
        median([row.number(name) for row in counted])
        for name in ("fsdp_over_ddp", "hidden", "hidden_later", "gathers_ms", "first_ms", "computing_ms", "hidden_early"))
    most = (gathers - first) / min(computing, gathers)
    text = (f"Through memory FSDP's step takes {ratio:.2f} times as long as DDP's (aim: at most 1.15). Over {gbit} Gbit/s {100 * hidden:.0f} % of its "
            f"{gathers:.2f} ms of gathers are hidden behind {computing:.2f} ms of computing. Before the root's and the first block's, {first:.2f} ms, "
            f"nothing computes, so that at most {100 * most:.0f} % can be; of the others {100 * later:.0f} % are hidden. With --unshard-in-step, "
            f"where those two begin in the optimizer's step, {100 * early:.0f} % of all are (aim: at least 85 %).")
    return text + (" Most rounds were disturbed by other work." if lost else "")
