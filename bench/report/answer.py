"""Which is faster, and why: sentences from difference.csv and summary.csv. Disturbed rows are in no sentence."""

from .look import DEVICE_0, NAMES, SHARDED
from .results import ReportError
from .text import plural, short_number, signed

# The reason, by the strategy whose phase is longer. Phases that are not listed have no reason: both strategies compute as much.
BECAUSE = {
    ("DP", "scatter"): "DP's device 0 sends the inputs to all devices",
    ("DP", "replicate"): "DP sends the weights to every device in every step",
    ("DP", "gather"): "DP copies the outputs to device 0",
    ("DP", "loss"): "DP's device 0 computes the loss alone",
    ("DP", "reduce"): "DP sums all gradients on device 0",
    ("DP", "data"): "DP loads the batch of all devices, a rank of DDP only its own rows",
    ("DDP", "replicate"): "DDP broadcasts rank 0's buffers (batch norm's statistics) before each forward, and waits there for a "
                          "slower rank",
    ("DDP", "optimizer"): "on DDP every rank runs an optimizer, on DP device 0 alone",
    ("DDP", "exposed"): "all-reduce that DDP's backward pass did not hide, and waits for a slower rank",
}


class Pair:
    """Two strategies' steps of one network on one number of devices: DP and DDP from difference.csv, or, from
    difference-mine.csv, a built-in strategy and the reader's own."""

    def __init__(self, model, world, strategies=("dp", "ddp")):
        self.model, self.world, self.verdict, self.parts = model, world, "", {}
        self.columns = [f"{strategy}_ms" for strategy in strategies]
        self.first, self.second = (NAMES[strategy] for strategy in strategies)
        self.dp = self.ddp = self.change = 0.0  # ms: the first strategy's step, the second's, second minus first

    def add(self, row):
        self.verdict = row["verdict"]
        if row["shown"] == "step":
            self.dp, self.ddp, self.change = (row.number(name) for name in (*self.columns, "difference_ms"))
        else:
            self.parts[row["shown"]] = self.parts.get(row["shown"], 0.0) + row.number("difference_ms")

    def check(self):
        if abs(sum(self.parts.values()) - self.change) > 2e-3:
            raise ReportError(f"the phases of {self.model} on {self.world} devices do not add up to its step")

    @property
    def digits(self):
        return 1 if self.dp >= 100 else 2

    def named(self):
        return {name: ms for name, ms in self.parts.items() if name != "all else"}

    def shown(self):
        """(phase, difference rounded as it is printed, in ms), largest first, "all else" last. They add up to the printed difference."""
        rounded = [(name, round(ms, self.digits)) for name, ms in
                   sorted(self.named().items(), key=lambda part: -abs(part[1]))]
        left = round(self.change, self.digits) - sum(ms for _, ms in rounded)
        return [*rounded, ("all else", round(left, self.digits))]

    def largest(self):
        """The phase with the largest difference of the same sign as the step's; "" if no phase has that sign."""
        with_step = {name: ms for name, ms in self.named().items() if ms * self.change > 0}
        return max(with_step, key=lambda name: abs(with_step[name]), default="")


def pairs(rows):
    """The pairs of these rows, in the order of the file."""
    found = {}
    for row in rows:
        key = row["model"], row.whole("world_size")
        strategies = [name.removesuffix("_ms") for name in row if name in ("dp_ms", "ddp_ms", "fsdp_ms", "mine_ms")]
        if len(strategies) != 2:
            raise ReportError(f"{row.place}it has the steps of {len(strategies)} strategies, and not of two")
        found.setdefault(key, Pair(*key, strategies)).add(row)
    for pair in found.values():
        pair.check()
    return list(found.values())


def pairs_here(results, name="difference"):
    """The pairs on results.world devices."""
    return [pair for pair in pairs(results.rows(f"{name}.csv")) if pair.world == results.world]


def change_text(pair):
    """"DDP saves 1.40 ms of DP's 15.52 per step (9.0 %)"."""
    dp, ddp, change = (f"{ms:.{pair.digits}f}" for ms in (pair.dp, pair.ddp, abs(pair.change)))
    if pair.verdict == "disturbed":
        return "disturbed by other work; no conclusion"
    if pair.verdict == "ties":
        return f"{pair.first} and {pair.second} tie: their steps take {dp} and {ddp} ms, each median within the other's quartiles"
    share = 100 * abs(pair.change) / pair.dp if pair.dp > 0 else 0
    what = f"saves {change} ms of {pair.first}'s {dp}" if pair.change < 0 else f"takes {change} ms more than {pair.first}'s {dp}"
    return f"{pair.second} {what} per step ({share:.1f} %)"


def difference_sentence(pair, name, where, cores=0, units="cores"):
    text = f"{name}, {pair.world} devices: {where}, {change_text(pair)}"
    if pair.verdict == "disturbed":
        return text + "."
    parts = ", ".join(f"{part} {signed(ms, pair.digits)}" for part, ms in pair.shown())
    if pair.verdict == "ties":
        return text + f". Per phase, {pair.second} minus {pair.first}, in ms: {parts}."
    text += f": {parts}."
    largest = pair.largest()
    why = BECAUSE.get((pair.first if pair.parts.get(largest, 0) < 0 else pair.second, largest)) if pair.second == "DDP" else None
    if why:
        text += f" The largest {'saving' if pair.change < 0 else 'cost'} is {largest}: {why}."
    if cores and pair.world > cores:
        text += f" {pair.world} devices share {cores} {units}, so each phase includes waits."
    return text


# ---- line one ----------------------------------------------------------------------------------------------------

def network_text(network):
    """"mlp-1024 (1.1 M parameters, 4.5 MB of gradients)"."""
    if not network["parameters"]:
        return network["name"]
    count = network.number("parameters")
    size = f"{4 * count / 1e6:.1f} MB" if count > 12500 else f"{4 * count / 1e3:.1f} kB"
    return f"{network['name']} ({short_number(count)} parameters, {size} of gradients)"


def place_text(link):
    """"10 Gbit/s" of "an emulated link of 10 Gbit/s and 20 us"; "" without a link."""
    return link.removeprefix("an emulated link of ").split(" and ")[0] if link else ""


def moving_ms(row):
    """Milliseconds in which DP's device 0 sends and sums while no device computes."""
    return row.total(*(f"{phase}_ms" for phase in DEVICE_0))


def waiting_ms(row):
    """Milliseconds in which a rank of DDP waits: for all-reduces that backward did not hide, and for the broadcast of buffers."""
    return row.total("exposed_ms", "replicate_ms")


def verdict_text(pair, place):
    """The first line's clause for one place ("through memory", "over 10 Gbit/s"), without the network."""
    if pair.verdict == "disturbed":
        return f"disturbed by other work {place}: no conclusion"
    if pair.verdict == "ties" or pair.change == 0:
        return f"{pair.first} and {pair.second} tie {place}"
    share = f"{100 * abs(pair.change) / pair.dp:.0f} %"
    if share == "0 %":
        return f"{pair.first} and {pair.second} differ by less than half a per cent {place}"
    whose = "its" if pair.second == "yours" else f"{pair.second}'s"
    return f"{whose} step is {share} {'shorter' if pair.change < 0 else 'longer'} than {pair.first}'s {place}"


def reason(pair, dp, ddp, where=""):
    """", because ...": why DDP is faster or slower, from DP's and DDP's rows of summary.csv. Names moving_ms and waiting_ms where they
    explain at least half of the difference, else the largest phase that does; "" without either. where: the place of these numbers, for
    a sentence about two places."""
    if pair.verdict in ("disturbed", "ties") or dp is None or ddp is None:
        return ""
    moving, waiting = moving_ms(dp), waiting_ms(ddp)
    if (waiting - moving) * pair.change <= 0 or abs(waiting - moving) < abs(pair.change) / 2:
        why = BECAUSE.get(("DP" if pair.parts.get(pair.largest(), 0) < 0 else "DDP", pair.largest()))
        return f", because {where}{why}" if why and abs(pair.parts[pair.largest()]) > abs(pair.change) / 2 else ""
    if pair.change < 0:
        left = f", and DDP still waits for {waiting:.1f} ms" if waiting >= 0.05 else ", and DDP waits for nothing"
        return f", because {where}DP's device 0 sends and sums {moving:.1f} ms a step while no device computes{left}"
    return f", because {where}DDP waits for {waiting:.1f} ms a step, and DP's device 0 sends and sums only {moving:.1f}"


def headline(results):
    """The first line: the first network's verdict through memory and over the link, with the reason."""
    model = results.models[0] if results.models else ""
    there = next(iter(pairs(results.rows("difference-link.csv"))), None)
    world = there.world if there else results.world
    here = next((pair for pair in pairs(results.rows("difference.csv")) if (pair.model, pair.world) == (model, world)), None)
    if here is None:
        return ""
    known = [(here, "through memory" if results.is_cpu else "on these GPUs", "summary.csv")]
    if there:
        known.append((there, f"over {place_text(results.link)}", "summary-link.csv"))
    said = [verdict_text(pair, place) for pair, place, _ in known]
    def why(pair, place, file, where=""):
        return reason(pair, *(results.row_of(strategy, model, world, file) for strategy in ("dp", "ddp")), where)

    verdicts = {pair.verdict for pair, _, _ in known}
    if len(known) == 2 and verdicts == {"ties"}:
        text = f"{said[0]} and {known[1][1]}"
    elif len(known) == 2 and verdicts == {"disturbed"}:
        text = f"disturbed by other work through memory and {known[1][1]}: no conclusion"
    elif len(known) == 2 and verdicts in ({"saves"}, {"loses"}) and all(" % " in one for one in said):
        shares = [abs(pair.change) / pair.dp for pair, _, _ in known]
        most = shares.index(max(shares))
        text = f"{said[0]} and {100 * shares[1]:.0f} % {known[1][1]}" + why(*known[most], "there " if most else f"{known[0][1]} ")
    else:
        text = "; ".join(what + why(*one) for what, one in zip(said, known))
    return f"{network_text(results.network(model))}, {plural(world, 'device')}: {text}."


def limit_line(results):
    """DDP's step compared with perfect scaling (one device's step divided by the number of devices), by causes; "" after a disturbed run, or with more devices
    than cores."""
    model, world = (results.models or [""])[0], results.world
    one, ddp = results.row_of("single", model, 1), results.row_of("ddp", model, world)
    if not one or not ddp or one.is_true("disturbed") or ddp.is_true("disturbed") or world > results.cores:
        return ""
    ideal, step = one.number("step_ms_p50") / world, ddp.number("step_ms_p50")
    if step <= 1.05 * ideal:
        what = "DDP scales perfectly" if step <= ideal else "DDP is within 5 % of perfect scaling"
        return f"{what}: its step takes {step:.2f} ms, and 1/{world} of one device's step is {ideal:.2f}."
    computing = ("forward_ms", "loss_ms", "backward_ms")
    parts = {
        f"computing beyond 1/{world} of one device's": ddp.total(*computing) - one.total(*computing) / world,
        "the optimizer, which every rank runs whole": ddp.number("optimizer_ms") - one.number("optimizer_ms") / world,
        "waiting for gradients": waiting_ms(ddp),
        "loading the batch, and host time between phases": ddp.total("data_ms", "other_ms") - one.total("data_ms", "other_ms") / world,
    }
    parts["time in no phase"] = step - ideal - sum(parts.values())
    known = [f"{what} ({ms:+.2f} ms)" for what, ms in sorted(parts.items(), key=lambda part: -part[1]) if ms >= 0.1 * (step - ideal)]
    return (f"DDP's distance to perfect scaling: its step takes {step:.2f} ms, and 1/{world} of one device's step is {ideal:.2f}: "
            f"{'; '.join(known)}." if known else "")


def answer_lines(results):
    """Sentences: the first network through memory, each network over the link, then the other networks and numbers of devices."""
    here = pairs(results.rows("difference.csv"))
    place = "through memory" if results.is_cpu else "on this machine"
    lines = [difference_sentence(pair, results.name(pair.model), place, results.cores, results.fact("units", "cores"))
             for pair in here]
    first = next((i for i, pair in enumerate(here) if (pair.model, pair.world) == (results.models[0], results.world)), 0)
    over = [difference_sentence(pair, results.name(pair.model), f"over {results.link}")
            for pair in pairs(results.rows("difference-link.csv"))]
    return [*lines[first:first + 1], *over, *lines[:first], *lines[first + 1:]]


def held_text(row, ddp):
    """A sharded strategy's memory and traffic per rank, compared with DDP's."""
    held, whole = (round(one.number("peak_bytes_device0") / 1e6, 2) for one in (row, ddp))
    change = f"{abs(whole - held):.2f} MB {'less' if held < whole else 'more'}" if held != whole else "as much"
    text = f"a rank holds {held:.2f} MB and DDP's {whole:.2f}, {change}"
    if row["strategy"] == "zero1":
        return f"with the optimizer divided (ZeRO-1), {text}"
    moved = ddp.number("moved_bytes_per_step")
    return f"fully sharded (FSDP), {text}, and moves {row.number('moved_bytes_per_step') / moved if moved else 0:.2f} times DDP's bytes"


def step_text(row, ddp):
    """A sharded strategy's step, compared with DDP's."""
    text = f"a step takes {row.number('step_ms_p50'):.2f} ms and DDP's {ddp.number('step_ms_p50'):.2f}"
    if row["strategy"] == "fsdp":
        return text + f", of which waiting for weights and gradients {row.number('exposed_ms'):.2f} and {ddp.number('exposed_ms'):.2f}"
    update, whole_update = (one.total("exposed_ms", "optimizer_ms") for one in (row, ddp))
    return (text + f", waiting for gradients and stepping {update:.2f} and {whole_update:.2f}, "
            f"{update / whole_update if whole_update > 0 else 0:.2f} times")


def sharded_lines(results):
    """ZeRO-1 and FSDP compared with DDP: a line for each strategy, network and number of devices."""
    lines = []
    for row in results.rows("summary.csv"):
        ddp = results.row_of("ddp", row["model"], row["world_size"])
        if row["strategy"] not in SHARDED or not ddp:
            continue
        line = f"{results.name(row['model'])}, {row['world_size']} devices: {held_text(row, ddp)}"
        if not row.is_true("timed"):
            lines.append(line + ".")
        elif row.is_true("disturbed") or ddp.is_true("disturbed"):
            lines.append(line + "; times were disturbed by other work, no conclusion.")
        else:
            lines.append(f"{line}; {step_text(row, ddp)}.")
    return lines
