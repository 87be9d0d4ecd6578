"""Hand-made results with known sentences."""

import subprocess
import tempfile
from pathlib import Path

from report.look import PHASES
from report.results import Results

ROOT = Path(__file__).resolve().parents[2]
HEAD = ["strategy", "model", "world_size", "timed", "disturbed", "step_ms_p25", "step_ms_p50", "step_ms_p75", "global_batch",
        "samples_per_s_p50", "peak_bytes_device0", "peak_bytes_other", "moved_bytes_per_step", "communication_ms", "repeats", "spread",
        *(f"{phase}_ms" for phase in PHASES)]


def row(strategy, model, world, step, disturbed=0, **phases):
    """A row of summary.csv: step is the median, or the quartiles; phases are milliseconds, or another column by its
    name."""
    p25, p50, p75 = step if isinstance(step, tuple) else (step * 0.98, step, step * 1.02)
    values = dict(strategy=strategy, model=model, world_size=world, timed=1, disturbed=disturbed, step_ms_p25=p25, step_ms_p50=p50,
                  step_ms_p75=p75, global_batch=300, samples_per_s_p50=300000 / p50, peak_bytes_device0=2e6, peak_bytes_other=1e6,
                  moved_bytes_per_step=1e6, communication_ms=0, repeats=5, spread=0.3)
    for name, value in phases.items():
        values[name if name in HEAD else f"{name}_ms"] = value
    return [values.get(name, 0) for name in HEAD]


class Made:
    """A context manager: a folder of results."""

    def __init__(self, **facts):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.facts(**facts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def facts(self, **facts):
        self.write("facts.txt", [f"{key} {value}" for key, value in facts.items()])

    def write(self, name, lines):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return self

    def csv(self, name, *rows):
        return self.write(name, [",".join(map(str, one)) for one in rows])

    def summary(self, *rows, part=""):
        """Writes summary.csv and difference.csv (with --mine also difference-mine.csv) as difference.awk does."""
        self.csv(f"summary{part}.csv", HEAD + ["emulated_link"] * bool(part),
                 *([*one, "10 Gbit/s and 20 us"] if part else one for one in rows))
        self.difference(f"summary{part}.csv", f"difference{part}.csv", "dp", "ddp")
        mine = self.results.mine
        if mine:
            self.difference(f"summary{part}.csv", f"difference{part}-mine.csv", mine["like"], "mine")
        return self

    def difference(self, summary, name, first, second):
        text = subprocess.run(["awk", "-v", f"a={first}", "-v", f"b={second}", "-f", ROOT / "bench/compare/difference.awk",
                               self.folder / summary], check=True, capture_output=True, text=True).stdout
        self.write(name, text.splitlines())

    @property
    def results(self):
        return Results(self.folder)
