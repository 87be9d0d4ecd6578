"""The section of bench/scaling.sh: DP's and DDP's step by the link, by the number of devices and by the batch.

Two steps tie if each median lies within the other's quartiles. Rows that are disturbed or were not measured are in no sentence.
"""

import math

from . import held, section
from .results import Results, median, network_name, quartiles, ties, unique, write_csv
from .text import QUICK, listed, markdown_table, plural

FIRST = 6  # the first step that counts
NAMES = {"single": "one device", "dp": "DP", "ddp": "DDP", "fp16": "fp16", "powersgd": "PowerSGD", "zero1": "ZeRO-1"}
HEAD = ["strategy", "world_size", "global_batch", "gbit", "step_ms_p25", "step_ms_p50", "step_ms_p75", "runs", "kept", "disturbed"]
NUMBERS = {"batches": ["scaling-batches.csv"], "memory": ["scaling-memory.csv", "scaling-traffic.csv"],
           "sharded": ["scaling-sharded.csv"]}
ABOUT = {
    "links": "{network} on two devices, {batch} rows a step; a message's latency is 20 us. In DP device 0 sends the "
             "weights and later receives the gradients; in DDP's ring both directions of a link carry bytes at once, so that by its bytes DP's "
             "step grows by twice as much. fp16 halves the bytes of DDP's gradients, PowerSGD (rank 1) sends two thin matrices for each large one.",
    "devices": "The same network over an emulated link of {middle} Gbit/s and 20 us; one device needs no link.",
    "batches": "A gpt with AdamW on two devices. `--dry-run` prints device 0's memory; the largest batch is found by bisection, in steps of "
               "one row per device. ZeRO-1 is DDP with the optimizer's state divided over the ranks.",
    "sharded": "gpt-small on two devices, {texts} texts a step, in turns. A gather is hidden while its rank computes; the first block's cannot be, "
               "as the forward pass begins with it, unless the step before starts it (`--unshard-in-step`).",
    "memory": "GPTs with AdamW and as many rows on each device (gpt-small 4, the others 1), by `--dry-run`; gpt-small was trained, too. FSDP's "
              "formula is 16 P / W + 8 R + 16 U bytes and DDP's activations, for P parameters, R of them the root's and U a block's, on W devices.",
}


def step_rows(results):
    """Rows of scaling.csv: quartiles over the steps of the runs that count. A row is disturbed if most of its runs are (then it is of all
    runs), or if the runs' medians differ by more than a quarter."""
    rows = []
    for one in results.words("configurations"):
        counted, lost = results.counted(f"step-{one}")
        kept = sum(not results.is_disturbed(f"step-{one}-{turn}") for turn in results.rounds)
        steps = [[row.number("step_ms") for row in results.steps(run, FIRST)] for run in counted]
        medians = [median(times) for times in steps]
        lost = lost or max(medians) > 1.25 * min(medians)
        rows.append([*one.split("-"), *(f"{ms:.4f}" for ms in quartiles(sum(steps, []))), len(results.rounds), kept, int(lost)])
    return sorted(rows, key=lambda row: (float(row[3].replace("none", "0")), int(row[1])))


def pick(rows, *values):
    """The row of (strategy, number of devices, batch, link); None if it is missing or disturbed."""
    return next((row for row in rows if [row[name] for name in HEAD[:4]] == list(map(str, values)) and not row.is_true("disturbed")), None)


def change(mine, other):
    """mine's step / other's step - 1; 0 if they tie; None if a row is missing."""
    if not mine or not other:
        return None
    ms, other_ms = (row.number("step_ms_p50") for row in (mine, other))
    return 0.0 if ties(mine, other) else ms / other_ms - 1


def amount(less):
    return "as long" if not less else f"{100 * abs(less):.0f} % {'less' if less < 0 else 'more'}"


def beside_dp(less):
    return f"DDP's step takes {amount(less)} {'than' if less else 'as'} DP's"


def times(longer):
    return "(disturbed)" if longer is None else "as long" if not longer else f"{1 + longer:.2f} times as long"


class Links:
    """The steps on two devices, by link."""

    def __init__(self, rows, batch):
        self.links = unique(row["gbit"] for row in rows if row["strategy"] == "fp16")
        self.row = {(strategy, gbit): pick(rows, strategy, 2, batch, gbit) for gbit in self.links for strategy in ("dp", "ddp", "fp16", "powersgd")}

    def changes(self, mine, other):
        found = [(gbit, change(self.row[mine, gbit], self.row[other, gbit])) for gbit in self.links]
        return [one for one in found if one[1] is not None]

    def ms(self, strategy, gbit):
        return self.row[strategy, gbit].number("step_ms_p50")

    def sentence(self):
        """DDP's step beside DP's on the slowest and the fastest link, and how much each step grows from the fastest to the slowest."""
        known = self.changes("ddp", "dp")
        if not known:
            return "DP and DDP: disturbed; no conclusion."
        text = ", ".join(f"over {gbit} Gbit/s {beside_dp(less)} ({self.ms('ddp', gbit):.1f} and {self.ms('dp', gbit):.1f} ms)"
                         for gbit, less in unique((known[0], known[-1])))
        dp, ddp = (self.ms(strategy, known[0][0]) - self.ms(strategy, known[-1][0]) for strategy in ("dp", "ddp"))
        if dp > 0 and ddp > 0:
            text += f". From {known[-1][0]} to {known[0][0]} Gbit/s DP's step grows by {dp:.1f} ms and DDP's by {ddp:.1f}: {dp / ddp:.1f} times as much"
        return text[0].upper() + text[1:] + "."

    def crossing(self, hook, known):
        """(Gbit/s, ms) where a hook's step and DDP's are equal, interpolated linearly in logarithms, as in the figure; None without one."""
        for low, high in zip(known, known[1:]):
            (a, b), (c, d) = ([math.log(self.ms(strategy, gbit)) for gbit in (low, high)] for strategy in (hook, "ddp"))
            if a < c and b >= d:
                at = (c - a) / (c - a + b - d)
                return float(low) * (float(high) / float(low)) ** at, math.exp(c + (d - c) * at)
        return None

    def pays(self, hook):
        """(sentence, crossing or None): the bandwidth below which a communication hook makes the step shorter."""
        name, known, at = NAMES[hook], self.changes(hook, "ddp"), None
        if not known:
            return f"{name}: disturbed; no conclusion.", None
        sure = [(gbit, less) for gbit, less in known if less]
        pay, cost = ([gbit for gbit, less in sure if (less < 0) == gain] for gain in (True, False))
        where = f"from {known[0][0]} to {known[-1][0]} Gbit/s"
        if not sure:
            text = f"{name} changes nothing beyond the quartiles {where}"
        elif not pay:
            text = f"{name} never pays {where}"
        elif not cost:
            text = f"{name} always pays {where}" if len(pay) == len(known) else \
                f"{name} pays at {listed(pay)} Gbit/s, and at no other link {where} does it change anything beyond the quartiles"
        elif float(pay[-1]) < float(cost[0]):
            at = self.crossing(hook, [gbit for gbit, _ in known if float(pay[-1]) <= float(gbit) <= float(cost[0])])
            text = f"Below {at[0]:.2g} Gbit/s {name} pays"
        else:
            text = f"No single bandwidth bounds where {name} pays: it does at {listed(pay)} Gbit/s, and does not at {listed(cost)}"
        text += ": a step takes " + " and ".join(f"{amount(less)} at {gbit} Gbit/s" for gbit, less in unique((known[0], known[-1])))
        lost = len(self.links) - len(known)
        return text + (f" ({plural(lost, 'link')} disturbed)." if lost else "."), at


def device_sentences(rows, batch, worlds, gbit, cores):
    """Strong and weak scaling on as many devices as there are cores, and DDP beside DP on more."""
    said, share = [], batch // 2
    world = max((world for world in worlds if world <= cores), default=0)
    for kind, what, one, here, perfect in (("Strong", f"{batch} rows", batch, batch, f"{1 / max(world, 1):.2f}"),
                                           ("Weak", f"{share} rows per device", share, share * world, "1.00")):
        dp, ddp = (times(change(pick(rows, strategy, world, here, gbit), pick(rows, "single", 1, one, "none"))) for strategy in ("dp", "ddp"))
        said += [f"{kind} scaling, {what}: beside one device's, a step on {world} takes {dp} under DP and {ddp} under DDP (perfect: {perfect})."] \
            if world else []
    more = [world for world in worlds if world > cores]
    if more:
        less = change(*(pick(rows, strategy, more[-1], share * more[-1], gbit) for strategy in ("ddp", "dp")))
        than = ": disturbed" if less is None else f": on {more[-1]}, with {share} rows each, {beside_dp(less)}"
        said.append(f"{listed(map(str, more))} devices share {plural(cores, 'core')} (thin lines, open marks), which shows no speed-up, but DDP compared with "
                    f"DP{than}.")
    return said


def batch_sentence(rows, memory):
    fits = listed(f"{row['batch']} rows under {NAMES[row['strategy']]}" for row in rows if row.is_true("fits"))
    held = sum(row["peak_bytes"] == row["computed_bytes"] and (row.number("computed_bytes") <= memory * 1e6) == row.is_true("fits") for row in rows)
    return (f"Into {memory:g} MB on device 0 fit {fits}. Of these batches, and of batches with one row more per device, which must exceed it, "
            f"{held} of {len(rows)} took exactly the bytes of their dry runs when they were trained.")


def table(rows):
    return [["strategy", "devices", "rows in all", "Gbit/s", "step, ms", "quartiles"]] + [
        [NAMES[row["strategy"]], row["world_size"], row["global_batch"], row["gbit"],
         "disturbed" if row.is_true("disturbed") else f"{row.number('step_ms_p50'):.2f}",
         f"{row.number('step_ms_p25'):.2f} to {row.number('step_ms_p75'):.2f}"] for row in rows]


def sections_of(results, rows, links, hooks):
    """(name, title, sentences) of the parts that were measured."""
    batch, gbit = int(results.number("batch")), results.fact("middle")
    batches, holds, moved, sharded = (results.rows(f"scaling-{part}.csv") for part in ("batches", "memory", "traffic", "sharded"))
    found = []
    if links.links:
        found.append(("links", "The step by the link", [links.sentence(), *(text for text, _ in hooks.values())]))
    if any(row["strategy"] == "single" for row in rows):
        worlds = [int(world) for world in results.words("worlds")]
        found.append(("devices", "The step by the number of devices", device_sentences(rows, batch, worlds, gbit, results.cores)))
    if batches:
        found.append(("batches", "The largest batch", [batch_sentence(batches, results.number("memory"))]))
    if holds:
        found.append(("memory", "A device's memory, and a step's bytes", [held.memory_sentence(holds), held.moved_sentence(moved)]))
    if sharded:
        found.append(("sharded", "FSDP's step beside DDP's", [held.sharded_sentence(sharded, gbit)]))
    return found


def collect(results):
    for name, head, rows in (("scaling", HEAD, step_rows(results)), ("scaling-memory", held.HEAD, held.memory_rows(results)),
                             ("scaling-traffic", held.MOVED, held.moved_rows(results) if results.words("sizes") else []),
                             ("scaling-sharded", held.SHARDED, held.sharded_rows(results))):
        write_csv(results.folder / f"{name}.csv", head, rows)


def write(folder):
    results = Results(folder)
    collect(results)
    rows, batch = results.rows("scaling.csv"), int(results.number("batch"))
    links = Links(rows, batch)
    hooks = {hook: links.pays(hook) for hook in ("fp16", "powersgd")}
    crossings = sorted(([hook, *at] for hook, (_, at) in hooks.items() if at), key=lambda one: one[1])
    write_csv(results.plots / "crossings.csv", ["hook", "gbit", "step_ms"], crossings)
    section.settings(results, batch=batch, middle=results.fact("middle"), cores=results.cores, memory=results.number("memory"),
                     crossings=len(crossings), sizes=results.fact("sizes"), most=int((results.words("counted") or ["2"])[-1]))
    parts = ["## By link, number of devices and batch", QUICK if results.is_quick else ""]
    for name, title, said in sections_of(results, rows, links, hooks):
        text = "" if results.is_quick and name not in ("batches", "memory") else " ".join(said)
        about = ABOUT[name].format(**results.facts, network=network_name("mlp", results.fact("hidden")))
        parts += [f"### {title}", text, section.draw(results.folder, f"scaling-{name}", text) if name != "sharded" else "",
                  f"{section.numbers(results, *NUMBERS.get(name, ['scaling.csv']))} {about}"]
        if name == "memory":
            parts += [markdown_table(held.memory_table(results.rows("scaling-memory.csv"))),
                      markdown_table(held.moved_table(results.rows("scaling-traffic.csv")))]
    section.finish(results, "scaling", *parts, markdown_table(table(rows)) if rows else "")
    print("\n".join(part for part in parts if part and part[0] not in "!#N"))
