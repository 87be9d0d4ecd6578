"""The section of bench/allreduce.sh: all-reduces by their size, beside the memory bound and a cache line's round trip."""

import math
import re

from . import section
from .results import Results, grouped, median, read_csv, unique, write_csv
from .text import NOTHING, QUICK, folded, markdown_table, terminal_table

SMALL = 4096  # the largest size that counts as small
TIMES = ("min_us", "p50_us", "p99_us", "bound_us")
ABOUT = """All-reduces of F32 sums, checked element by element as they are timed; an iteration's time is the slowest
of {world} ranks'. Medians over rounds ({rounds}). *algbw* is the bytes by the median time in GB/s, *busbw* is that times
2(W-1)/W: what each rank's link carries at least. *bound* is the time of a plain sum of the same bytes by the same cores
without synchronisation, and *of* its ratio to the all-reduce's."""


def size(count):
    for unit, bytes_of in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count % bytes_of == 0:
            return f"{count // bytes_of} {unit}"
    return f"{count} B"


def printed(backend, turn, lines):
    """(rows of allreduce.csv, round trips of a cache line in us) from the output of bench_allreduce. A size without a bound has NaN."""
    rows, trips, world, names = [], [], "", []
    for line in lines:
        found = re.match(r"# all_reduce .* world=(\d+)", line)
        trip = re.match(r"# round trip .* p50_us=([0-9.]+)", line)
        world = found[1] if found else world
        trips += [trip[1]] if trip else []
        fields = line.split()
        if fields and fields[0] == "bytes":
            names = fields
        elif fields and not line.startswith("#"):
            at = dict(zip(names, fields))
            rows.append([backend, world, at["bytes"], *("NaN" if at[name] == "-" else at[name] for name in TIMES), turn])
    return rows, trips


def collect(results):
    """Writes allreduce.csv and trips.csv, and returns the disturbed backends: those with more than half of their runs disturbed. Their rows
    are of all runs, the other backends' of the undisturbed runs."""
    rows, trips, lost = [], [], []
    for backend in results.words("backends"):
        for sweep in results.words("sweeps"):
            runs, is_lost = results.counted(f"{backend}-{sweep}")
            lost += [backend] * is_lost
            for run in runs:
                mine, back = printed(backend, run.rpartition("-")[2], results.lines(f"runs/{run}/output.txt"))
                rows += mine
                trips += [[backend, us] for us in back]
    write_csv(results.folder / "allreduce.csv", ["backend", "world", "bytes", *TIMES, "round"], rows)
    write_csv(results.folder / "trips.csv", ["backend", "us"], trips)
    return unique(lost)


def sizes(rows):
    """A row of medians over the rounds for each backend (shm before mpi) and size. `bound` and `of` are NaN where no bound was measured."""
    table = []
    for backend in sorted({row["backend"] for row in rows}, reverse=True):
        for count in sorted({row.whole("bytes") for row in rows if row["backend"] == backend}):
            mine = [row for row in rows if row["backend"] == backend and row.whole("bytes") == count]
            low, p50, high, bound = (math.nan if mine[0][name] == "NaN" else median([row.number(name) for row in mine]) for name in TIMES)
            world = mine[0].number("world")
            algbw = count / p50 / 1e3
            table.append(dict(backend=backend, bytes=count, min=low, p50=p50, p99=high, bound=bound, algbw=algbw,
                              busbw=algbw * 2 * (world - 1) / world, of=bound / p50))
    return table


def table(found):
    def shown(number, digits=2):
        return "-" if math.isnan(number) else f"{number:.{digits}f}"
    return [["backend", "bytes", "min us", "p50 us", "p99 us", "algbw", "busbw", "bound us", "of"]] + [
        [one["backend"], size(one["bytes"]), *(shown(one[name]) for name in ("min", "p50", "p99", "algbw", "busbw")), shown(one["bound"], 1),
         shown(one["of"])] for one in found]


def known(found, lost):
    """The rows of sizes() by backend, without the disturbed backends."""
    return {backend: sizes_of for (backend,), sizes_of in grouped(found, "backend").items() if backend not in lost}


def trip_sentence(found, trips, lost=()):
    """The time of the largest small message in round trips of a cache line; "" if no round trip was measured."""
    trip, takes, least = median([row.number("us") for row in trips]), [], 0
    for backend, sizes_of in known(found, lost).items():
        small = [one for one in sizes_of if one["bytes"] <= SMALL]
        if small and not math.isnan(trip):
            least = least or small[-1]["bytes"]
            takes.append(f"{small[-1]['p50'] / trip:.1f} through {backend}" + (" (aim: at most 2)" if backend == "shm" else ""))
    return (f"A cache line goes from one core to another and back in {trip:.3f} us. An all-reduce of {size(least)} takes, in such "
            f"round trips, {', '.join(takes)}." if takes else "")


def share_sentence(found, lost=()):
    """The figure's sentence: the share of the memory bound that large messages reach."""
    shares, least = [], []
    for backend, sizes_of in known(found, lost).items():
        bound = [one for one in sizes_of if not math.isnan(one["of"])]
        least += [one["bytes"] for one in bound]
        bucket = next((f", {one['of']:.2f} at 25 MiB" for one in bound if one["bytes"] == 25 << 20), "")
        if bound:
            of = [one["of"] for one in bound]
            shares.append(f"through {backend} {min(of):.2f} to {max(of):.2f}{bucket}" + (" (aim: at least 0.90)" if backend == "shm" else ""))
    return f"Share of the memory bound from {size(min(least))} on: {'; '.join(shares)}." if shares else NOTHING


def drawn(found):
    """(head, rows) of the figure's data: by size, the bus bandwidth of the first backend's bound and of each backend."""
    backends = unique(one["backend"] for one in found)
    by = {(one["backend"], one["bytes"]): one for one in found}
    rows = []
    for one in found:
        if one["backend"] == backends[0]:
            bound = one["busbw"] / one["of"]
            rows.append([one["bytes"], "NaN" if math.isnan(bound) else f"{bound:.6g}",
                         *(f"{by[backend, one['bytes']]['busbw']:.6g}" if (backend, one["bytes"]) in by else "NaN" for backend in backends)])
    return ["bytes", "bound", *backends], rows


def write(folder):
    results = Results(folder)
    lost = collect(results)
    found = sizes(results.rows("allreduce.csv"))
    counts = [one["bytes"] for one in found]
    head, rows = drawn(found)
    write_csv(results.plots / "allreduce.csv", head, rows)
    section.settings(results, backends=" ".join(head[2:]), bound_from=next((row[0] for row in rows if row[1] != "NaN"), 0))
    trips, text = read_csv(results.folder / "trips.csv"), QUICK if results.is_quick else share_sentence(found, lost)
    said = []
    if lost and not results.is_quick:
        said.append(f"**Disturbed** in most rounds, without a sentence: {', '.join(lost)}.")
    if not results.is_quick:
        said.append(trip_sentence(found, trips, lost))
    section.finish(results, "allreduce", f"## All-reduce, from {size(min(counts))} to {size(max(counts))}", "\n".join(said), section.draw(results.folder, "allreduce", text),
                   f"{text} {section.numbers(results, 'allreduce.csv')}", markdown_table(table(found)), ABOUT.format(**results.facts))
    print("\n".join([terminal_table(table(found)), *map(folded, [*said, text])]))
