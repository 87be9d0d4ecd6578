"""The report of bench/compare.sh: report.md, report.html, their figures, and what the terminal shows."""

import sys
from pathlib import Path

from . import answer, captions, figures, look, mine, page, player, section, tables
from .results import ReportError, Results, unique, write_csv
from .text import columns, folded, markdown_table, signed, terminal_table
from .traces import overlap_of, step_of, with_waiting

REFERENCE = Path(__file__).resolve().parent.parent / "results" / "two-cores"


class Comparison:
    """The results, and the data that several sections share: overlaps, one step of each strategy, losses."""

    def __init__(self, folder):
        self.results = Results(folder)
        self.traced, self.steps, self.losses = {}, {}, {}
        for path in sorted(self.results.folder.glob("trace-*-*.json")):
            run = path.stem.removeprefix("trace-")
            if run.endswith(("-serial", "-overlapped")):
                self.traced[run] = overlap_of(path)
        self.over = over = "link-" if self.results.has("trace-link-dp.json") and self.results.has("trace-link-ddp.json") else ""
        self.where = f"over {self.results.link}" if over else "through memory" if self.results.is_cpu else "on GPUs"
        for label in self.results.strategies:
            path = self.results.folder / f"trace-{over}{label}.json"
            if path.is_file():
                tracks, spans, arrows = step_of(path, look.NAMES[label], self.results.runs_like(label))
                self.steps[label] = tracks, with_waiting(tracks, spans) if self.results.runs_like(label) == "dp" else spans, arrows
        for model in self.results.curve_models:
            self.losses[model] = self.curves(model)

    def is_step_disturbed(self):
        return self.results.is_disturbed(*(f"timeline-{self.over}{label}" for label in self.steps))

    def configurations(self):
        worlds = self.results.words("worlds")
        return [("single", "1")] + [(strategy, world) for strategy in self.results.strategies for world in worlds]

    def curves(self, model):
        """Rows [step, the loss of each drawn run], of the steps that all runs have."""
        runs = [{row["step"]: row.number("loss") for row in self.results.steps(f"curve-{model}-{strategy}-{world}")}
                for strategy, world in self.drawn_curves(model)]
        return [[step, *(run[step] for run in runs)] for step in runs[0] if all(step in run for run in runs)]

    def drawn_curves(self, model):
        """The configurations, without those of the reader's own that failed."""
        return [(strategy, world) for strategy, world in self.configurations()
                if strategy != "mine" or self.results.has(f"runs/curve-{model}-{strategy}-{world}/steps.csv")]

    # ---- the figures' data -----------------------------------------------------------------------------------

    def lay_out(self):
        plots = self.results.plots
        for model in self.results.models:
            rows, name = self.results.summary(model), self.results.name(model)
            if rows:
                for kind, of in (("", rows), ("memory-", self.results.summary(model, but=()))):
                    write_csv(plots / f"{kind}{name}.csv", of[0].keys(), [row.values() for row in of])
                lay_out_phases(plots / f"phases-{name}.csv", rows)
        for name in ("difference", "difference-mine"):
            for pair in answer.pairs_here(self.results, name):
                lay_out_difference(plots / f"{name}-{self.results.name(pair.model)}.csv", pair)
        for model, rows in self.losses.items():
            header = ["step", *(f"{strategy}:{world}" for strategy, world in self.drawn_curves(model))]
            write_csv(plots / f"loss-{self.results.name(model, 'curves')}.csv", header, rows)
        for file in ("buckets.csv", "buckets-mine.csv"):
            rows = self.results.rows(file)
            if not rows:
                continue
            least = min((row.number("cap_mb") for row in rows if row.number("cap_mb") > 0), default=1.0)
            for row in rows:
                row["position"] = row["cap_mb"] if row.number("cap_mb") > 0 else f"{least / 4:g}"
            write_csv(plots / file, rows[0].keys(), [row.values() for row in rows])
        if {"dp", "ddp"} <= set(self.steps):
            self.lay_out_timeline()

    def lay_out_timeline(self):
        """Writes the timeline's data: DP's rows on top, then DDP's, then the reader's own, with gaps. In a row longer spans precede the
        shorter spans that are drawn over them."""
        tracks, spans, arrows, row = [], [], [], 0.0
        for label in self.steps:
            below, here, ready = self.steps[label]
            tracks += [(row + at, name) for at, name in below]
            spans += [(row + at, *rest) for at, *rest in here]
            arrows += [(row + at, begin, row + to, end) for at, begin, to, end in ready]
            row = max(at for at, _ in tracks) + 0.7
        plots = self.results.plots
        write_csv(plots / "tracks.csv", ["row", "label"], [(f"{at:g}", name) for at, name in tracks])
        write_csv(plots / "timeline.csv", ["row", "begin_ms", "end_ms", "phase", "bucket"],
                  [(f"{at:g}", f"{begin:.9g}", f"{end:.9g}", *rest) for at, begin, end, *rest in spans])
        write_csv(plots / "arrows.csv", ["from_row", "from_ms", "to_row", "to_ms"],
                  [(f"{at:g}", f"{begin:.9g}", f"{to:g}", f"{end:.9g}") for at, begin, to, end in arrows])

    def settings(self):
        results = self.results
        section.settings(
            results,
            models=" ".join(results.name(model) for model in results.models),
            curve_models=" ".join(results.name(model, "curves") for model in results.curve_models),
            runs=" ".join(f"{strategy}:{world}" for strategy, world in self.configurations()),
            strategies=" ".join(results.strategies),
            mine_like=look.NAMES[results.mine["like"]] if results.mine else "",
            mine_models=" ".join(results.name(pair.model) for pair in answer.pairs_here(results, "difference-mine")),
            has_mine_buckets=int(results.has("buckets-mine.csv")),
            worlds=" ".join(map(str, results.timed_worlds)),
            answer_world=str(results.world),
            units=results.fact("units", "cores"),
            cores=results.cores,
            key_phases=key_phases(results),
            key_timeline=seen_phases(580, [results.rows("plots/timeline.csv")]),
            timeline_model=f"{captions.traced_network(results)}, {self.where}",
            link_text=results.link,
            dp_rows=len(self.steps["dp"][0]) if "dp" in self.steps else 0,
            **{f"{label}_end": round(captions.end_of(step[1]), 6) for label, step in self.steps.items()
               if label == "mine" or not self.is_step_disturbed()})  # without ends the timeline has no bracket of what DDP saves

    def figures(self):
        """{name: (sentence, [file of numbers])} of the figures whose data were measured."""
        results, found = self.results, {}
        if self.losses:
            names = {model: results.name(model, "curves") for model in self.losses}
            found["loss"] = (captions.joined(captions.loss(names[model], rows) for model, rows in self.losses.items() if rows),
                             [f"plots/loss-{name}.csv" for name in names.values()])
        if results.timed_worlds:
            found["difference"] = captions.difference(results), ["difference.csv"]
            for caption in (captions.throughput, captions.phases, captions.memory):
                found[caption.__name__] = caption(results), ["summary.csv"]
            if self.steps:
                caption = captions.timeline(self.steps, self.where, captions.deep_network(results), self.is_step_disturbed())
                found["timeline"] = caption, ["plots/timeline.csv"]
            if answer.pairs_here(results, "difference-mine"):
                found["difference-mine"] = captions.difference(results, "difference-mine"), ["difference-mine.csv"]
            if results.has("buckets.csv"):
                found["buckets"] = captions.buckets(results), ["buckets.csv", "buckets-mine.csv"]
        return found

    def draw(self):
        self.results.plots.mkdir(exist_ok=True)
        self.lay_out()
        self.settings()
        if figures.has_gnuplot():
            figures.prepare(self.results.folder)
            for name, (caption, _) in self.figures().items():
                figures.draw(self.results.folder, name, caption)

    # ---- the texts -------------------------------------------------------------------------------------------

    def figure(self, name):
        """The figure, its sentence and its numbers, as Markdown."""
        return figures.shown(self.results, name, *self.figures().get(name, ("", [])))

    def sections(self):
        """Paths of other commands' section.md: for results in DIR, those in DIR-ladder, DIR-peers and so on; the ladder first."""
        folder = self.results.folder.resolve()
        found = [path for path in sorted(folder.parent.glob(f"{folder.name}-*/section.md")) if path.stat().st_size]
        return sorted((f"../{path.parent.name}/section.md" for path in found), key=lambda name: "-ladder/" not in name)

    def tell(self):
        """Prints the tables and sentences on the terminal."""
        results = self.results
        speed, curves, bits = tables.speed(results), tables.curves(self), tables.equivalence(results)
        parts = [columns(speed, *range(1, 8)), columns(speed, 1, 2, 3, 8, 9, 10), columns(curves, *range(1, 8)),
                 columns(bits, 1, 2, 3, 4, 6, 10)]
        print("\n" + "\n\n".join(terminal_table(part) for part in parts if len(part) > 1) + "\n")
        if results.timed_worlds:
            lines = [answer.headline(results), answer.limit_line(results), mine.headline(results), *answer.answer_lines(results),
                     *mine.lines(results), *answer.sharded_lines(results)]
            print("\n".join(folded(line) for line in lines if line) + "\n")
        for line in tables.disturbed(results):
            print(folded(f"disturbed: {line}"))
        if results.fact("untimed"):
            print(folded(results.fact("untimed")))

    def reference_line(self):
        """The sentence that compares this machine with the one of the kept results; "" without a probe on both."""
        kept = Results(REFERENCE)
        here, there = (results.row_of("single", "mlp", 1) for results in (self.results, kept))
        if not kept.probe or not self.results.probe or kept.facts == self.results.facts:
            return ""
        text = (f"The reference result (bench/results/two-cores) was made on {processor(kept)}, which reach {kept.probe[0]:.0f} GFLOP/s and "
                f"{kept.probe[1]:.1f} GB/s; this one on {processor(self.results)}, which reach {self.results.probe[0]:.0f} GFLOP/s and "
                f"{self.results.probe[1]:.1f} GB/s.")
        if here and there and here.is_true("timed") and not here.is_true("disturbed"):
            text += (f" One device's step of {self.results.name('mlp')} takes {there.number('step_ms_p50'):.1f} ms there and "
                     f"{here.number('step_ms_p50'):.1f} here.")
        return text

    def text(self):
        """report.md."""
        results = self.results
        return page.render("report.md.j2", {
            "c": self, "results": results, "answer": answer, "mine": mine, "captions": captions, "tables": tables, "table": markdown_table,
            "overlaps": captions.overlaps(results, self.traced), "sections": self.sections(), "unique": unique,
            "commands": results.lines("commands.txt"), "has_gnuplot": figures.has_gnuplot(),
        })


def processor(results):
    """"2 cores of Intel(R) Xeon(R) Processor"."""
    said = [line.removeprefix("Processor: ") for line in results.fact("machine").splitlines() if line.startswith("Processor: ")]
    return f"{results.cores} cores of {said[0].rpartition(',')[0] or said[0] if said else 'an unknown processor'}"


def lay_out_difference(path, pair):
    """Writes the data of a pair's bars. A bar's number is rounded as in the sentence: the numbers add up to the step's difference."""
    printed = dict(pair.shown())
    rows = [(name, ms, printed[name]) for name, ms in pair.named().items()]
    rows += [("all else", pair.parts.get("all else", 0.0), printed["all else"]), ("step", pair.change, pair.change)]
    verdict = [int(pair.verdict == what) for what in ("disturbed", "ties")]
    write_csv(path, ["row", "phase", "difference_ms", "shown_ms", "disturbed", "tie"],
              [(i + 1, name, f"{ms:.4f}", signed(said, pair.digits), *verdict) for i, (name, ms, said) in enumerate(rows)])


def lay_out_phases(path, rows):
    parts = []
    for i, row in enumerate(rows):
        label = look.NAMES[row["strategy"]] + ("" if row["strategy"] == "single" else f" {row['world_size']}")
        begin = 0.0
        for phase in look.PHASES:
            end = begin + row.number(f"{phase}_ms")
            parts.append((i + 1, label, phase, f"{begin:.4f}", f"{end:.4f}", int(row.is_true("disturbed"))))
            begin = end
    write_csv(path, ["row", "label", "phase", "begin_ms", "end_ms", "disturbed"], parts)


def seen_phases(width, files):
    """The phases for a figure's key: those with a span wider than 1.5 of the figure's `width` pixels."""
    seen = set()
    for rows in files:
        longest = max((row.number("end_ms") for row in rows), default=1.0) or 1.0
        for row in rows:
            pixels = (row.number("end_ms") - row.number("begin_ms")) / longest * width
            if row["phase"] in look.PHASES and pixels > 1.5:
                seen.add(row["phase"])
    return " ".join(phase for phase in look.PHASES if phase in seen)


def key_phases(results):
    """The phases in the key of the figure of phases, whose bars are 450 pixels wide at most."""
    return seen_phases(450, [results.rows(f"plots/{path.name}") for path in results.plots.glob("phases-*.csv")])


def write(folder, title="DataParallel and DistributedDataParallel, compared"):
    if not (Path(folder) / "runs").is_dir():
        raise ReportError(f"{folder} has no runs/, which bench/compare.sh leaves there: what bench/results/keep.sh keeps makes no report")
    player.write(folder)
    comparison = Comparison(folder)
    comparison.draw()
    lines = comparison.text().splitlines()
    folder = comparison.results.folder
    (folder / "report.md").write_text("\n".join(page.with_contents(lines, folder)) + "\n", encoding="utf-8")
    page.write(folder, "report", lines, title)
    comparison.tell()
    sys.stdout.flush()
