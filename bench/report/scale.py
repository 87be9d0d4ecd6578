"""The section of bench/model/scale.sh: DP's, DDP's and FSDP's step on up to thousands of devices."""

import math

from . import section
from .look import NAMES
from .results import Results, read_scaled, unique, write_csv
from .text import folded, listed, markdown_table

HEAD = ["levels", "algorithm", "straggler", "devices", "strategy", "step_ms", "efficiency", "simulated_ms"]
# The lines of the figure: (strategy, levels of the network, algorithm, words for how the strategy communicates).
LINES = {
    "dp": ("dp", "1", "none", ""), "ring": ("ddp", "1", "ring", "by a ring"), "tree": ("ddp", "1", "tree", "by a tree"),
    "hierarchical": ("ddp", "1", "hierarchical", "by rings of rings"), "two": ("ddp", "2", "hierarchical", "with fast nodes of 8"),
    "fsdp": ("fsdp", "1", "ring", "by rings"), "fsdp_two": ("fsdp", "2", "hierarchical", "with fast nodes of 8"),
}
ABOUT = """These steps are computed, not measured: from one device of this machine by the algebra of bench/model/README.md. Every device
has a link of 10 Gbit/s and 10 us; *two levels* have 200 Gbit/s and 3 us inside nodes of 8."""
SIMULATED = """SimGrid simulates every message (circles in the figure) of steps of up to five million messages; those of large rings have more."""


def collect(results):
    """Rows of scale.csv. DP's step is independent of the algorithm and of the network's levels, because it waits for device 0's link."""
    wanted, rows = {line[:3] for line in LINES.values()}, []
    for straggler in results.words("stragglers"):
        for levels, algorithm in (case.split("-") for case in results.words("cases")):
            for row in read_scaled(results.lines(f"runs/{levels}-{algorithm}-{straggler}/output.txt")):
                by = "none" if (row["strategy"], algorithm) == ("dp", "ring") else algorithm
                if (row["strategy"], levels, by) in wanted:
                    rows.append([levels, by, straggler, row["devices"], row["strategy"], row["step"], row["efficiency"],
                                 row.get("simulated", "not simulated")])
    return rows


class Panel:
    """The steps with all devices equally fast, or with one straggler."""

    def __init__(self, rows, straggler):
        mine = [row for row in rows if row["straggler"] == straggler]
        self.devices = unique(row["devices"] for row in mine)
        names = {line[:3]: name for name, line in LINES.items()}
        self.row = {(names[row["strategy"], row["levels"], row["algorithm"]], row["devices"]): row for row in mine}
        self.lines = [name for name in LINES if (name, self.devices[0]) in self.row]

    def simulated(self, line, devices):
        """SimGrid's milliseconds; NaN where it has none."""
        text = self.row[line, devices]["simulated_ms"]
        return math.nan if text == "not simulated" else float(text)

    def plot(self):
        def simulated(line, devices):
            return f"{self.simulated(line, devices):g}".replace("nan", "NaN")
        return [["devices", *(name for line in self.lines for name in (line, f"{line}_simulated"))]] + [
            [devices, *(ms for line in self.lines for ms in (self.row[line, devices]["step_ms"], simulated(line, devices)))] for devices in self.devices]

    def table(self):
        return [["devices", *(f"{called(line)}, ms" for line in self.lines), "simulated"]] + [
            [devices, *(f"{self.row[line, devices].number('step_ms'):.1f}" for line in self.lines),
             f"{sum(not math.isnan(self.simulated(line, devices)) for line in self.lines)} of {len(self.lines)}"] for devices in self.devices]

    def ms(self, line):
        return self.row[line, max(self.devices, key=int)].number("step_ms")

    def half(self, line):
        """The largest number of devices at which each is at least half as fast as one alone."""
        return max((int(devices) for devices in self.devices if self.row[line, devices].number("efficiency") >= 0.5), default=0)


def called(line):
    strategy, _, _, how = LINES[line]
    return f"{NAMES[strategy]} {how}".strip()


def by_strategy(panel, number):
    """"DP 9; DDP 3 by a ring and 2 by a tree", where number(line) gives each line's number."""
    return "; ".join(f"{NAMES[strategy]} " + listed(f"{number(line)} {LINES[line][3]}".strip() for line in panel.lines if LINES[line][0] == strategy)
                     for strategy in unique(LINES[line][0] for line in panel.lines))


def sentence(rows):
    """The steps on the most devices, the limit of each strategy, and the largest distance of the model from SimGrid."""
    panel = Panel(rows, "1")
    text = (f"On {max(panel.devices, key=int)} devices a step takes, in ms: {by_strategy(panel, lambda line: f'{panel.ms(line):.1f}')}. The largest "
            f"number of devices with an efficiency of at least one half: {by_strategy(panel, panel.half)}.")
    off = [abs(row.number("step_ms") / row.number("simulated_ms") - 1) for row in rows if row["simulated_ms"] != "not simulated"]
    if off:
        text += f" SimGrid simulates {len(off)} of these {len(rows)} steps, and the algebra is within {math.ceil(1e4 * max(off)) / 100 or 0.01:.2f} % of it."
    return text


def write(folder):
    results = Results(folder)
    write_csv(results.folder / "scale.csv", HEAD, collect(results))
    rows, without = results.rows("scale.csv"), results.fact("without")
    panels = [Panel(rows, straggler) for straggler in results.words("stragglers")]
    for i, panel in enumerate(panels):
        head, *body = panel.plot()
        write_csv(results.plots / f"scale-{i + 1}.csv", head, body)
    drawn = [line for line in panels[0].lines if all(any(not math.isnan(panel.simulated(line, one)) for one in panel.devices) for panel in panels)]
    section.settings(results, simulated=" ".join(drawn))
    said = sentence(rows)
    parts = [f"## DP, DDP and FSDP on up to {max(panels[0].devices, key=int)} devices", f"{said}\n{without}".strip(),
             section.draw(results.folder, "scale", said), ABOUT if without else f"{ABOUT}\n{SIMULATED}"]
    for panel, title in zip(panels, ("All devices are equally fast", "One device computes 1.5 times as long")):
        parts += [f"### {title}", markdown_table(panel.table())]
    section.finish(results, "scale", *parts, section.numbers(results, "scale.csv"))
    print("\n".join(filter(None, (folded(said), without))))
