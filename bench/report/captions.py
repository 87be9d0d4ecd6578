"""The sentence of each figure of a comparison, computed from the figure's data; and the sentences about the slow link."""

from .answer import change_text, moving_ms, pairs_here, waiting_ms
from .look import DEVICE_0, NAMES, SHARDED
from .results import ties
from .text import joined, listed, plural, signed
from .traces import hidden_of

DISTURBED = "disturbed"


def of_world(results, model, but=SHARDED):
    """summary.csv's rows of a network on results.world devices by strategy, without the strategies `but`."""
    return {row["strategy"]: row for row in results.summary(model, but) if row.whole("world_size") == results.world}


def difference(results, file="difference"):
    return joined(f"{results.name(pair.model)}: {DISTURBED if pair.verdict == DISTURBED else change_text(pair)}" for pair in pairs_here(results, file))


def throughput(results):
    said = []
    for model in results.models:
        name = results.name(model)
        rows = [row for row in results.summary(model) if not row.is_true("disturbed")]
        one = next((row for row in rows if row["strategy"] == "single"), None)
        if one is None:
            said.append(f"{name}: disturbed")
            continue
        best = max(rows, key=lambda row: row.number("samples_per_s_p50"))
        speed = best.number("samples_per_s_p50")
        others = [configuration(row) for row in rows if row is not best and ties(row, best)]
        faster = [row for row in rows if row.number("samples_per_s_p50") > one.number("samples_per_s_p50") and not ties(row, one)]
        drawn = "the drawn lines" if len(rows) == len(results.summary(model)) else "the undisturbed lines"
        said.append(f"{name}: of {drawn} none is faster than one device" if not faster else
                    f"{name}: of {drawn} the fastest is {configuration(best)} with {speed:.0f} samples per second, "
                    f"{speed / one.number('samples_per_s_p50'):.2f} times one device" +
                    (f" ({listed(others)} {'ties' if len(others) == 1 else 'tie'} with it)" if others else ""))
    return joined(said)


def configuration(row):
    """"DP on 2 devices"."""
    return NAMES[row["strategy"]] + (f" on {row['world_size']} devices" if row["strategy"] != "single" else "")


def phases(results):
    """The share of a step in which bytes move or ranks wait."""
    said = []
    for model in results.models:
        name, rows = results.name(model), of_world(results, model)
        if {"dp", "ddp"} - set(rows):
            continue
        if any(row.is_true("disturbed") for row in rows.values()):
            said.append(f"{name}: disturbed")
            continue
        share = {strategy: 100 * (moving_ms(row) + row.number("exposed_ms")) / row.number("step_ms_p50")
                 for strategy, row in rows.items()}
        said.append(f"{name} on {results.world} devices: moving data and waiting take {share['dp']:.1f} % of DP's step and "
                    f"{share['ddp']:.1f} % of DDP's" + (f", {share['mine']:.1f} % of yours" if "mine" in share else ""))
    return joined(said)


def memory(results):
    said = []
    for model in results.models:
        rows = of_world(results, model, but=())
        if {"dp", "ddp"} <= set(rows):
            peak = {strategy: row.number("peak_bytes_device0") / 1e6 for strategy, row in rows.items()}
            others = "".join(f", {peak[other]:.2f} MB under {NAMES[other]}" for other in ("mine", *SHARDED) if other in peak)
            said.append(f"{results.name(model)} on {results.world} devices: device 0 holds {peak['dp']:.2f} MB under DP and "
                        f"{peak['ddp']:.2f} MB under DDP{others}")
    return joined(said)


def heavy_on_device_0(results):
    """The networks for which DP's device 0 holds at least 1.5 times the other devices' memory."""
    rows = [(results.name(model), of_world(results, model).get("dp")) for model in results.models]
    return [name for name, row in rows if row and row.number("peak_bytes_device0") >= 1.5 * row.number("peak_bytes_other")]


def loss(name, rows):
    """The largest difference of a network's losses from one device's. rows: [step, one device's loss, the other runs' losses]."""
    most, at = max(((max((abs(other - row[1]) for other in row[2:]), default=0.0), int(row[0])) for row in rows),
                   key=lambda one: one[0])
    return f"{name}: the loss differs from one device's by at most {most:.1e}, at step {at} of {int(rows[-1][0])}"


def end_of(spans):
    return max((span[2] for span in spans), default=0.0)


def timeline(steps, where, network, is_disturbed=False):
    """The sentence of the timeline. steps: (tracks, spans, arrows) of "dp", "ddp" and perhaps "mine"; row 1 of DP is its main thread."""
    if not {"dp", "ddp"} <= set(steps):
        return ""
    if is_disturbed:
        return "**Disturbed**: something else used the machine during these runs, so that their steps' lengths allow no conclusion."
    (tracks, spans, _), (_, ddp_spans, arrows) = steps["dp"], steps["ddp"]
    dp, ddp = end_of(spans), end_of(ddp_spans)
    devices = len({span[0] for span in spans if span[3] == "waiting"}) or 1
    waiting = sum(span[2] - span[1] for span in spans if span[3] == "waiting") / devices
    moving = sum(span[2] - span[1] for span in spans if span[0] == 1 and span[3] in DEVICE_0)
    saved = "the bracket is the time that DDP saves" if ddp < dp else "here DDP saves nothing"
    text = (f"{where[0].upper()}{where[1:]}, these steps of {network} take {dp:.1f} ms on DP and {ddp:.1f} on DDP: {saved}. DP's devices "
            f"wait for {waiting:.1f} ms of their step (hatched, without colour); device 0 sends and sums for {moving:.1f}.")
    own = f"Yours takes {end_of(steps['mine'][1]):.1f} ms." if "mine" in steps else ""
    return " ".join(part for part in (text, first_bucket(ddp_spans, arrows), own) if part)


def first_bucket(spans, arrows):
    """When rank 0's first bucket was ready, as a share of its backward pass; "" without arrows. Rank 0 has the first rows."""
    if not arrows:
        return ""
    row = min(arrow[0] for arrow in arrows)
    ready = [arrow[1] for arrow in arrows if arrow[0] == row]
    backward = [span for span in spans if span[0] == row and span[3] == "backward"]
    begin, end = min((span[1] for span in backward), default=0), end_of(backward)
    if end <= begin:
        return ""
    return (f"The first of DDP's {len(ready)} buckets is ready after {100 * (min(ready) - begin) / (end - begin):.0f} % of the "
            "backward pass.")


def buckets(results):
    every = results.rows("buckets.csv")
    rows = [row for row in every if not row.is_true("disturbed")]
    if len(rows) < 2:
        return "Disturbed by other work; no conclusion."
    best = min(rows, key=lambda row: row.number("step_ms_p50"))
    ms = best.number("step_ms_p50")
    ends = [row for row in (every[0], every[-1]) if row is not best]
    known = [row for row in ends if row in rows]
    of = ", of the sizes that were not disturbed," if len(rows) < len(every) else ""
    text = f"Over {results.link} DDP's step of {deep_network(results)} on 2 devices is{of} shortest with buckets of {best['cap_mb']} MB, {ms:.2f} ms"
    equal = [row["cap_mb"] for row in rows if row is not best and ties(row, best)]
    text += f" ({listed(equal)} MB {'ties' if len(equal) == 1 else 'tie'} with it)" if equal else ""
    for row in known:
        text += f"; with {row['cap_mb']} MB it takes {100 * (row.number('step_ms_p50') / ms - 1):.0f} % more"
    lost = len(every) - len(rows)
    apart = [row.number("step_ms_p25") > best.number("step_ms_p75") for row in known]  # quartiles do not overlap
    if lost and len(known) < len(ends):
        text += ". Whether the curve is a U is not known"
    elif len(ends) == 2 and all(apart):
        text += ". The curve is a U: both ends lie above its lowest point, with quartiles apart"
    else:
        text += ". The curve is no U: not both ends lie above its lowest point with quartiles apart"
    text += f" ({lost} of {plural(len(every), 'size')} disturbed)." if lost else "."
    mine = [row for row in results.rows("buckets-mine.csv") if not row.is_true("disturbed")]
    if mine:
        least = min(mine, key=lambda row: row.number("step_ms_p50"))
        text += f" Yours is shortest with {least['cap_mb']} MB, {least.number('step_ms_p50'):.2f} ms."
    return text


def growth(results):
    """For each strategy, whether its bytes predict how its step grows with the number of devices."""
    return [line for line in (grown(results, strategy) for strategy in results.strategies) if line]


def grown(results, strategy):
    """One strategy's sentence of growth(). Each additional device adds the same bytes to device 0's link under DP; DDP's ring divides its
    bytes among all links."""
    rows, name = [row for row in results.rows("growth.csv") if row["strategy"] == strategy], NAMES[strategy]
    through_device_0 = results.runs_like(strategy) == "dp"
    if len(rows) < 2:
        return ""
    if any(row.is_true("disturbed") for row in rows):
        return f"How {name} grows with the number of devices: disturbed."
    gbit = float(rows[0].get("emulated_link", "1").split()[0])
    first, last = rows[0], rows[-1]
    more = last.number("step_ms_p50") - first.number("step_ms_p50")
    before, after = (row.number("moved_bytes_per_step") / (1 if through_device_0 else row.number("world_size")) for row in (first, last))
    moved = after - before
    predicted = moved * 8 / (gbit * 1e6)
    if predicted <= 0:
        return ""
    share = f"grows by {100 * more / predicted:.0f} % of that" if more > 0 else "does not grow"
    within = 0.9 * predicted <= more <= 1.1 * predicted
    moves = (f"Device 0 moves {moved / 1e6:.2f} MB more, one device after the other" if through_device_0 else
             f"Each rank's link carries {moved / 1e6:.2f} MB more")
    return (f"Over an emulated link of {gbit:g} Gbit/s, {name}'s step of {results.name(first['model'])} takes {first.number('step_ms_p50'):.1f} ms on "
            f"{first['world_size']} devices and {last.number('step_ms_p50'):.1f} on {last['world_size']}: {abs(more):.1f} ms "
            f"{'less' if more < 0 else 'more'}. {moves}, which takes {predicted:.1f} ms: the step {share}, "
            f"so the bytes {'' if within else 'do not '}predict it within 10 %.")


def overlaps(results, traced):
    """[(link, hidden_of its runs, or None if these were disturbed)]. traced: overlap_of by "memory-serial", "memory-overlapped", ..."""
    found = []
    for label, where in (("shared memory", "memory"), (results.fact("fast_link"), "fast"), (results.link, "slow")):
        runs = [f"{where}-{how}" for how in ("serial", "overlapped")]
        if all(run in traced for run in runs):
            one = hidden_of(*(traced[run] for run in runs))
            # A backward pass that is slower alone than beside communication was disturbed, even if no probe noticed it.
            disturbed = one["inflated"] < 0.9 or results.is_disturbed(*(f"overlap-{run}" for run in runs))
            found.append((label.removeprefix("an "), None if disturbed else one))
    return found


def short_ms(ms):
    """At least three significant digits from 0.1 ms on, so that a reader can compute shares."""
    return f"{ms:.{2 if ms >= 1 else 3}f}"


def percent(part, whole):
    return f"{100 * part / whole if whole else 0:.0f} %"


def overlap_sentences(found):
    """For each link, whether overlap hides at least 90 % of the communication that backward could hide."""
    said = []
    for label, one in found:
        where = "Through shared memory" if label == "shared memory" else f"Over an {label}"
        if one is None:
            said.append(f"{where}: disturbed by other work; no conclusion.")
            continue
        reached = one["hidden"] >= 0.9 * one["can_hide"]
        said.append(f"{where} overlap hides {short_ms(one['hidden'])} of {short_ms(one['all'])} ms of all-reduces, "
                    f"{percent(one['hidden'], one['all'])}. At most {percent(one['can_hide'], one['all'])} could be hidden, and the "
                    f"aim, 90 % of that, is {'' if reached else 'not '}reached. The backward pass takes "
                    f"{one['inflated']:.2f} times as long as without overlap.")
    return said


def cause_rows(results, traced, probe):
    """The table "Why is it slow?": a row for each cause with the first network's figures. probe: (GFLOP/s, GB/s) or None."""
    model, world = results.models[0], results.world
    head = ["cause", f"measured ({results.name(model)}, {world} devices)", "here"]
    rows = of_world(results, model)
    one = next((row for row in results.summary(model) if row["strategy"] == "single"), None)
    if one is None or {"dp", "ddp"} - set(rows) or any(row.is_true("disturbed") for row in (one, *rows.values())):
        table = [head, ["all", "this network's runs", DISTURBED]]
    else:
        dp, ddp = rows["dp"], rows["ddp"]
        compute = {name: row.total("forward_ms", "loss_ms", "backward_ms") for name, row in (("one", one), ("dp", dp), ("ddp", ddp))}
        ideal = compute["one"] / world
        busy, moved = ddp.number("communication_ms"), ddp.number("moved_bytes_per_step") / 1e6
        hosts, updates = ([row.total(*names) for row in (one, dp, ddp)] for names in (("data_ms", "other_ms"), ("optimizer_ms",)))
        table = [
            head,
            ["compute", f"forward, loss and backward: one device's, shared by {world}", f"{ideal:.2f} ms"],
            ["compute", "the same under DP, and its ratio to one device's share", f"{compute['dp']:.2f} ms, {compute['dp'] / ideal:.2f}"],
            ["compute", "the same under DDP, and its ratio to one device's share", f"{compute['ddp']:.2f} ms, {compute['ddp'] / ideal:.2f}"],
            ["exposed communication", "DP: scatter, replicate, gather, reduce", f"{moving_ms(dp):.2f} ms"],
            ["exposed communication", "DDP: all-reduce that backward did not hide, and waits for buffers", f"{waiting_ms(ddp):.2f} ms"],
            ["host", "loading the batch, and time between phases: one device, DP, DDP", "{:.2f}, {:.2f}, {:.2f} ms".format(*hosts)],
            ["replicated work", "the optimizer, which steps all weights on a device: one device, DP, DDP",
             "{:.2f}, {:.2f}, {:.2f} ms".format(*updates)],
            ["memory bandwidth", "bytes that all ranks of DDP move in a step, and their rate",
             f"{moved:.2f} MB, {moved / busy:.1f} GB/s" if busy > 0 else "-"],
        ]
    if probe:
        table.append(["memory bandwidth", "a pass through memory by all cores (the probe)", f"{probe[1]:.1f} GB/s"])
    if "memory-overlapped" in traced and not results.is_disturbed("overlap-memory-overlapped"):
        table.append(["imbalance", f"difference of two ranks' ends of backward (median; {traced_network(results)})",
                      f"{traced['memory-overlapped']['skew']:.2f} ms"])
    return table


def traced_network(results):
    """The timeline's network and its batch, as the sentences name them."""
    return results.fact("traced") or results.name("mlp", "timeline")


def deep_network(results):
    """The name of the timeline's network, without its batch."""
    return traced_network(results).partition(",")[0]
