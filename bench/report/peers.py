"""The section of bench/peers/compare.sh: ours beside PyTorch, Open MPI and Gloo.

A ratio is the peer's time divided by ours in the same round: above 1, ours is faster. The tables have its median and quartiles over the
undisturbed rounds. If most rounds were disturbed, there is no sentence.
"""

from . import section
from .results import Results, grouped, median, network_name, quartiles, unique, write_csv
from .text import QUICK, folded, listed, markdown_table, plural, terminal_table

# The aims, as least ratios: with two ranks, on one CPU device and on one GPU.
WITH_TWO = {("all-reduce", "Open MPI"): 4, ("all-reduce", "Gloo"): 8, ("mlp", "PyTorch DDP"): 2, ("convnet", "PyTorch DDP"): 2.7,
            ("resnet20", "PyTorch DDP"): 1.35}
ON_ONE_CPU = {("mlp", "PyTorch"): 1.3, ("convnet", "PyTorch"): 2, ("resnet20", "PyTorch"): 1.35}
ON_ONE_GPU = {("mlp", "PyTorch"): 5, ("resnet20", "PyTorch"): 1.5, ("mlp", "train_single"): 0.99, ("resnet20", "train_single"): 0.99}
RANKS = {"1": "on one device", "2": "with two ranks"}
ABOUT = """A row named after a model times a training step, a row named after a size an all-reduce of so many bytes. Times are
medians over the undisturbed rounds; a ratio is the peer's time over ours in the same round, given as median and quartiles.
Our step includes its loader, PyTorch's does not. An aim is the least ratio wanted, on one device and with two ranks."""


class Pair:
    """Our times and a peer's of one measurement."""

    def __init__(self, key, rows, hidden, device="cpu"):
        self.kind, self.what, self.world, self.peer = key
        good = [row for row in rows if not row.is_true("disturbed")]
        self.good, self.rounds = len(good), len(rows)
        aims = {"2": WITH_TWO, "1": ON_ONE_GPU if device == "cuda" else ON_ONE_CPU}.get(self.world, {})
        self.aim = aims.get((self.kind if self.kind == "all-reduce" else self.what, self.peer))
        self.what = network_name(self.what, hidden)
        self.known = good and 2 * len(good) >= len(rows)
        if self.known:
            self.ours, self.theirs = (median([row.number(column) for row in good]) for column in ("ours_ms", "theirs_ms"))
            self.low, self.ratio, self.high = quartiles([row.number("theirs_ms") / row.number("ours_ms") for row in good])

    @property
    def verdict(self):
        if not self.known:
            return "disturbed"
        return "-" if not self.aim else "reached" if self.ratio >= self.aim else "missed"

    @property
    def label(self):
        return f"{self.peer}: {self.what} ({self.world})"


def pairs(results):
    return [Pair(key, rows, results.fact("hidden"), results.fact("device"))
            for key, rows in grouped(results.rows("peers.csv"), "kind", "what", "world", "peer").items()]


def table(found):
    """The pairs with fewer digits, as a table. A row named by a size in MiB is an all-reduce."""
    def short(ratio):
        return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
    rows = [["what", "peer", "ranks", "ours ms", "theirs", "ratio", "quartiles", "aim", "rounds"]]
    for pair in found:
        numbers = [f"{pair.ours:.3g}", f"{pair.theirs:.3g}", short(pair.ratio), f"{short(pair.low)}-{short(pair.high)}"] if pair.known else \
            ["-", "-", "-", "disturbed"]
        rows.append([pair.what, pair.peer, pair.world, *numbers, f"{pair.aim or '-'}", f"{pair.good}/{pair.rounds}"])
    return rows


def sentences(found):
    """A sentence for each peer with two ranks or with an aim, from the undisturbed rows; and the rows that missed the aims."""
    lines = []
    known = [pair for pair in found if pair.known and (pair.world == "2" or pair.aim)]
    for peer, world in unique((pair.peer, pair.world) for pair in known):
        mine = [pair for pair in known if (pair.peer, pair.world) == (peer, world)]
        verb = "all-reduces" if mine[0].kind == "all-reduce" else "trains"  # a peer has one kind of rows
        said = listed(f"{pair.what} {pair.ratio:.2f} times" for pair in mine)
        lines.append(f"{RANKS[world].capitalize()}, ours {verb} {said} as fast as {peer}.")
    aims = [pair for pair in found if pair.aim]
    if aims:
        count = {verdict: sum(pair.verdict == verdict for pair in aims) for verdict in ("reached", "disturbed")}
        text = f"Of {plural(len(aims), 'aim')} {count['reached']} {'was' if count['reached'] == 1 else 'were'} reached"
        if count["disturbed"]:
            text += f", and {count['disturbed']} could not be judged, because the machine was disturbed"
        missed = ", ".join(f"{pair.what} with {pair.peer} ({pair.ratio:.3g} of {pair.aim})" for pair in aims if pair.verdict == "missed")
        lines.append(text + (f"; missed: {missed}." if missed else "."))
    return lines


def gradient_sentence(rows):
    """The largest distance of our gradients from PyTorch's."""
    shares = [(row.number("max_abs") / row.number("max_magnitude"), row) for row in rows if row.number("max_magnitude") > 0]
    worst, where = max(shares, key=lambda one: one[0], default=(0.0, None))
    named = f" ({where['model']}, {where['tensor']})" if worst > 0 else ""
    return (f"The gradients of the first step agreed in {sum(row.is_true('held') for row in rows)} of {len(rows)} comparisons of a tensor; the "
            f"largest difference was {worst:.1e} of the tensor's largest magnitude{named}.")


def drawn(found):
    return [[i + 1, pair.label, f"{pair.ratio:.6f}", f"{pair.low:.3f}", f"{pair.high:.3f}", pair.aim or "NaN"]
            for i, pair in enumerate(pair for pair in found if pair.known)]


def caption(found):
    known = [pair for pair in found if pair.known]
    least, most = (choose(known, key=lambda pair: pair.ratio) for choose in (min, max))
    return f"The ratios lie between {least.ratio:.2f} ({least.label}) and {most.ratio:.2f} ({most.label}); above 1 we are faster."


def write(folder):
    results = Results(folder)
    found = pairs(results)
    said = [QUICK] if results.is_quick else sentences(found)
    said.append(gradient_sentence(results.named("gradients.csv")))
    write_csv(results.plots / "peers.csv", ["row", "label", "ratio", "low", "high", "target"], drawn(found))
    figure = ["(Everything was disturbed: there is no figure.)"]
    if drawn(found):
        text = QUICK if results.is_quick else caption(found)
        figure = [section.draw(results.folder, "peers", text), text]
    section.finish(results, "peers", "## Beside PyTorch, Open MPI and Gloo", "\n".join(said), markdown_table(table(found)), ABOUT, *figure,
                   section.numbers(results, "peers.csv", "gradients.csv"))
    print("\n".join([terminal_table(table(found)), *map(folded, said)]))
