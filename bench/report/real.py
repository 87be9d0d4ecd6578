"""The section of bench/model/real.sh: the model's steps beside real ones over emulated links.

The profile of one device has no costs of sharing a machine. These are measured on two devices without a link, and one number over a link
whose messages cost half a millisecond and their bytes nothing; the steps over the other links are then predicted, each strategy's by
two of these numbers. Disturbed rows are in no sentence.
"""

import re

from . import section
from .results import Results, median, scaled, write_csv
from .text import markdown_table, terminal_table

FIRST = 3  # the first step that counts
COMPUTING = ("forward_ms", "loss_ms", "backward_ms")
FSDP_MOVES = 3  # of all weights or gradients: gathered twice, reduced once
HEAD = ["link", "strategy", "model_ms", "real_ms", "real_over_model", "disturbed"]
ABOUT = """Four numbers are measured without a link: two devices that do not communicate compute {slowdown:.4f} times as long
as one did; DDP's sums take a core {sum_us:.3f} us for a million bytes, DP's copies {copy_us:.3f} us, a gather or a reduction of FSDP
{shard_us:.3f} us. A sleep ends {wake_us:g} us late.
DP's devices sleep between their parts of a step, and then compute {rested_slowdown:.4f} times as long, measured over a link with
a latency of half a millisecond and unlimited bandwidth."""


class Measured:
    """The numbers that the runs give the model, and the model's steps."""

    def __init__(self, results, programs):
        self.results, self.programs, self.lost = results, programs, set()
        profile = "\n".join(results.lines("runs/profile/output.txt"))
        self.wake_us, gradients = (float(re.search(rf"{name}=([0-9.]+)", profile)[1]) for name in ("wake_us", "gradients"))
        dp, ddp, fsdp, noop = (self.step(f"{strategy}-none") for strategy in ("dp", "ddp", "fsdp", "noop"))
        rested, at_once = (self.step(f"dp-{link}", *COMPUTING) for link in (results.fact("rest"), "none"))
        self.slowdown = noop / self.model("ddp", "1e6", 0)
        self.rested_slowdown = self.slowdown * rested / at_once
        self.sum_us = max(ddp - noop, 0) * 1e9 / gradients
        self.copy_us = max(dp - self.model("dp", "1e6", 0, "--straggler", self.slowdown), 0) / 2 * 1e9 / gradients
        self.shard_us = max(fsdp - self.model("fsdp", "1e6", 0, "--straggler", self.slowdown), 0) / FSDP_MOVES * 1e9 / gradients
        self.is_known = not self.lost and not results.is_disturbed("profile")

    def step(self, series, *columns):
        """The median over the rounds that count of a run's median step, or of the sum of these columns, in ms. Adds the series to self.lost
        if most of its rounds were disturbed."""
        runs, lost = self.results.counted(series)
        if lost:
            self.lost.add(series)
        return median([self.results.median_ms(run, FIRST, *columns) for run in runs])

    def model(self, strategy, gbit, latency_us, *options):
        """The model's step, in ms."""
        rows = scaled(self.programs, self.results.folder / "profile.json", "--devices", 2, "--bucket-cap-mb", 1, "--gbit", gbit, "--latency-us",
                      latency_us, *options)
        return next(row.number("step") for row in rows if (row["devices"], row["strategy"]) == ("2", strategy))

    def rows(self):
        """Rows of real.csv. A sleep ends wake_us late: in each message of DP, in each gather or reduction of FSDP, and in the second half
        only of an all-reduce."""
        rows = []
        for strategy, times, late in (("dp", self.rested_slowdown, self.wake_us), ("ddp", self.slowdown, self.wake_us / 2),
                                      ("fsdp", self.slowdown, self.wake_us)):
            for link in self.results.words("links"):
                gbit, latency = link.split(",")
                model = self.model(strategy, gbit, float(latency) + late, "--straggler", times, "--sum-us", self.sum_us, "--copy-us", self.copy_us,
                                   "--shard-us", self.shard_us)
                real = self.step(f"{strategy}-{link}")
                rows.append([f"emulated {gbit} Gbit/s + {latency} us", strategy, f"{model:.2f}", f"{real:.2f}", f"{real / model:.3f}",
                             int(f"{strategy}-{link}" in self.lost)])
        return rows


def sentence(rows, is_known=True):
    """How many steps are within 10 % of the model, and the largest error. is_known: neither the profile nor the steps without
    a link were disturbed."""
    if not is_known:
        return "The profile or the steps without a link were **disturbed**, and the model needs them: no conclusion."
    known = [(abs(row.number("real_over_model") - 1), row) for row in rows if not row.is_true("disturbed")]
    text = []
    if known:
        off, far = max(known, key=lambda one: one[0])
        text.append(f"Two devices on emulated links: of {len(known)} median steps {sum(one[0] <= 0.1 for one in known)} are within 10 % of the model; "
                    f"the largest error is {100 * off:.0f} %, of {far['strategy'].upper()} over {far['link']}.")
    if len(known) < len(rows):
        text.append(f"{len(rows) - len(known)} of {len(rows)} were **disturbed** and are not counted.")
    return " ".join(text)


def table(rows):
    return [["link", "strategy", "model, ms", "real, ms", "real over model"]] + [
        [*(row[name] for name in HEAD[:4]), row["real_over_model"] + " disturbed" * row.is_true("disturbed")] for row in rows]


def write(folder, programs):
    results = Results(folder)
    measured = Measured(results, programs)
    write_csv(results.folder / "real.csv", HEAD, measured.rows())
    rows, about = results.rows("real.csv"), ABOUT.format(**vars(measured))
    said = sentence(rows, measured.is_known)
    section.finish(results, "real", "## The model beside real steps", f"{said}\n{about}" if measured.is_known else said, markdown_table(table(rows)),
                   section.numbers(results, "real.csv"))
    print("\n".join([about, terminal_table(table(rows)), said]))
