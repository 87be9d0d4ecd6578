"""The section of bench/model/scale.sh: DP's and DDP's step on up to thousands of devices."""

import math

from . import section
from .results import Results, read_scaled, unique, write_csv
from .text import folded, listed, markdown_table

HEAD = ["levels", "algorithm", "straggler", "devices", "strategy", "step_ms", "efficiency", "simulated_ms"]
# The lines of the figure by levels and algorithm, and what the table calls them.
LINES = {("1", "none"): ("dp", "DP"), ("1", "ring"): ("ring", "ring"), ("1", "tree"): ("tree", "tree"),
         ("1", "hierarchical"): ("hierarchical", "rings of rings"), ("2", "hierarchical"): ("two", "two levels")}
ABOUT = """These steps are computed, not measured: from one device of this machine by the algebra of bench/model/README.md. Every device
has a link of 10 Gbit/s and 10 us; *two levels* have 200 Gbit/s and 3 us inside nodes of 8."""
SIMULATED = """SimGrid sends the same messages one by one (rings in the figure), but for steps of more than five million of them, as those of large
rings."""


def collect(results):
    """Rows of scale.csv. DP knows no algorithm, and its step is the same on both networks, because device 0's link is what it waits for."""
    rows = []
    for straggler in results.words("stragglers"):
        for levels, algorithm in (case.split("-") for case in results.words("cases")):
            for row in read_scaled(results.lines(f"runs/{levels}-{algorithm}-{straggler}/output.txt")):
                is_dp = row["strategy"] == "dp"
                if row["strategy"] == "ddp" or (is_dp and (levels, algorithm) == ("1", "ring")):
                    rows.append([levels, "none" if is_dp else algorithm, straggler, row["devices"], row["strategy"], row["step"], row["efficiency"],
                                 row.get("simulated", "not simulated")])
    return rows


class Panel:
    """The steps with all devices equally fast, or with one straggler."""

    def __init__(self, rows, straggler):
        mine = [row for row in rows if row["straggler"] == straggler]
        self.devices = unique(row["devices"] for row in mine)
        self.row = {(LINES[row["levels"], row["algorithm"]][0], row["devices"]): row for row in mine}
        self.lines = [name for name, _ in LINES.values() if any(line == name for line, _ in self.row)]

    def simulated(self, line, devices):
        """SimGrid's milliseconds; NaN where it has none."""
        text = self.row[line, devices]["simulated_ms"]
        return math.nan if text == "not simulated" else float(text)

    def plot(self):
        return [["devices", *(name for line in self.lines for name in (line, f"{line}_simulated"))]] + [
            [devices, *(ms for line in self.lines for ms in (self.row[line, devices]["step_ms"], f"{self.simulated(line, devices):g}".replace("nan", "NaN")))]
            for devices in self.devices]

    def table(self):
        return [["devices", *(f"{says}, ms" for name, says in LINES.values()), "simulated"]] + [
            [devices, *(f"{self.row[line, devices].number('step_ms'):.1f}" for line in self.lines),
             f"{sum(not math.isnan(self.simulated(line, devices)) for line in self.lines)} of {len(self.lines)}"] for devices in self.devices]

    def ms(self, line):
        return self.row[line, max(self.devices, key=int)].number("step_ms")

    def half(self, line):
        """The most devices of which one is at least half as fast as alone."""
        return max((int(devices) for devices in self.devices if self.row[line, devices].number("efficiency") >= 0.5), default=0)


def sentence(rows):
    """The steps of the most devices, how far each strategy goes, and where the model and SimGrid part."""
    panel = Panel(rows, "1")
    dp, *ddp = panel.lines
    by = ("by a ring", "by a tree", "by rings of rings", "with fast nodes of 8")
    text = (f"On {max(panel.devices, key=int)} devices a step takes DP {panel.ms(dp):.0f} ms, and DDP "
            f"{listed(f'{panel.ms(line):.1f} {how}' for line, how in zip(ddp, by))}; at least half as fast as alone is a device of DP among up to "
            f"{panel.half(dp)}, of DDP among up to {listed(str(panel.half(line)) for line in ddp)}")
    off = [abs(row.number("step_ms") / row.number("simulated_ms") - 1) for row in rows if row["simulated_ms"] != "not simulated"]
    if off:
        text += f"; SimGrid simulates {len(off)} of these {len(rows)} steps and the algebra is within {math.ceil(1e4 * max(off)) / 100 or 0.01:.2f} % of it"
    return text + "."


def write(folder):
    results = Results(folder)
    write_csv(results.folder / "scale.csv", HEAD, collect(results))
    rows, without = results.rows("scale.csv"), results.fact("without")
    panels = [Panel(rows, straggler) for straggler in results.words("stragglers")]
    for i, panel in enumerate(panels):
        head, *body = panel.plot()
        write_csv(results.plots / f"scale-{i + 1}.csv", head, body)
    drawn = [line for line in panels[0].lines if all(any(not math.isnan(panel.simulated(line, one)) for one in panel.devices) for panel in panels)]
    (results.plots / "settings.gp").write_text(f'simulated = "{" ".join(drawn)}"\n', encoding="utf-8")
    said = sentence(rows)
    lines = [f"## DP and DDP on up to {max(panels[0].devices, key=int)} devices", "", said, without, "", section.draw(results.folder, "scale", said), "", ABOUT, *[SIMULATED] * (not without)]
    for panel, title in zip(panels, ("All devices are equally fast", "One device computes 1.5 times as long")):
        lines += ["", f"### {title}", "", markdown_table(panel.table())]
    section.finish(results, "scale", [*lines, "", section.numbers(results, "scale.csv")])
    print("\n".join(filter(None, (folded(said), without))))
