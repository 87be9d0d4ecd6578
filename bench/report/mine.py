"""Sentences about the reader's own wrapper or all-reduce (compare.sh --mine): its speed beside the strategy that it replaces, its bits,
and its failed runs."""

from .answer import difference_sentence, pairs, place_text, verdict_text
from .text import listed, plural

# The reason, by the phase that is longer under yours. There are no reasons for a longer phase of the built-in strategy.
BECAUSE = {
    "exposed": "it waits for gradients after the backward pass",
    "replicate": "it sends weights or buffers longer",
    "reduce": "it sums gradients longer",
    "scatter": "it sends inputs longer",
    "gather": "it copies outputs longer",
    "optimizer": "its optimizer runs longer",
}


def because(pair):
    """The phase that explains more than half of the time that yours adds; "" without such a phase."""
    largest = pair.largest()
    why = BECAUSE.get(largest, "") if (pair.first, largest) != ("FSDP", "exposed") else "it waits for weights and gradients longer"
    explains = pair.verdict not in ("disturbed", "ties") and pair.change > 0 and pair.parts.get(largest, 0) > pair.change / 2
    return f", because {why} ({pair.parts[largest]:+.2f} ms of {largest})" if explains and why else ""


def headline(results):
    """Yours compared with the built-in strategy, through memory and over the link, and whether the bits are equal; "" without --mine."""
    if not results.mine:
        return ""
    first = next(iter(results.models), "")
    here = [(pair, "through memory" if results.is_cpu else "on these GPUs") for pair in pairs(results.rows("difference-mine.csv"))
            if (pair.model, pair.world) == (first, results.world)]
    there = [(pair, f"over {place_text(results.link)}") for pair in pairs(results.rows("difference-link-mine.csv"))[:1]]
    said = [verdict_text(pair, place) + because(pair) for pair, place in here + there]
    text = f"Yours ({results.mine['file']})"
    text += f" with {results.name(first)} on {plural(results.world, 'device')}: {'; '.join(said)}" if said else ": its speed is not known"
    return f"{text}. {bits(results)}"


def bits(results):
    """The result of the comparisons of bits with the built-in strategy."""
    broken, all_pairs = (int(results.number(key)) for key in ("mine_broken", "mine_comparisons"))
    program = f"train_{results.mine['like']}"
    if not all_pairs:
        return f"It was not compared with {program}'s numbers."
    if broken:
        return f"Its numbers are NOT {program}'s in {broken} of {all_pairs} comparisons."
    return f"Its numbers are {program}'s in all {plural(all_pairs, 'comparison')}."


def lines(results):
    """A sentence for each pair of steps, then one for each run that failed."""
    if not results.mine:
        return []
    places = (("difference-mine.csv", "through memory" if results.is_cpu else "on this machine"), ("difference-link-mine.csv", f"over {results.link}"))
    said = [difference_sentence(pair, results.name(pair.model), place, results.cores, results.fact("units", "cores"))
            for file, place in places for pair in pairs(results.rows(file))]
    return said + [failure(results, row) for row in results.rows("failed.csv")]


def failure(results, row):
    what = {"speed": "a timed run", "curve": "the training to its end", "equivalence": "a comparison of numbers", "link": "a run over the link",
            "growth": "a run over the slow link", "buckets": "a run with other buckets", "timeline": "the traced run"}.get(row["part"], row["part"])
    where = results.name(row["model"], row["part"])
    return f"Yours failed: {what} of {where} on {plural(row.whole('world_size'), 'device')}: {row['why'].rstrip('.')}. It has no row there."


def not_the_same(results):
    """The comparisons of bits that failed, for the sentence below the table."""
    broken = sorted({(results.name(row["model"], "equivalence"), row["b"].removeprefix("mine:")) for row in results.rows("equivalence.csv")
                     if row["b"].startswith("mine:") and not row.is_true("held")})
    return f"Yours differs: {listed(f'{model} on {run}' for model, run in broken)}." if broken else ""
