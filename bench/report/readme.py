"""Writes the figures of bench/results/two-cores into README.md, for bench/results/keep.sh two-cores."""

import re
from pathlib import Path

from .answer import moving_ms, waiting_ms
from .results import ReportError, Results
from .tables import speed
from .text import columns, terminal_table

SHOWN = [(network, strategy) for network in ("mlp-1024", "resnet20") for strategy in ("single", "dp", "ddp", "fsdp")]


def figures(results):
    """{pattern of a figure in README.md: its text}."""
    dp, ddp = (results.row_of(strategy, "mlp", 2, "summary-link.csv") for strategy in ("dp", "ddp"))
    table = columns(speed(results), *range(1, 8))
    rows = [row for row in table if (row[0], row[1]) in SHOWN and row[2] in ("1", "2")]
    return {
        r"[0-9.]+ ms with DP\b": f"{dp.number('step_ms_p50'):.2f} ms with DP",
        r"[0-9.]+ ms of which is that copying": f"{moving_ms(dp):.1f} ms of which is that copying",
        r"[0-9.]+ ms with DDP\b": f"{ddp.number('step_ms_p50'):.2f} ms with DDP",
        r"[0-9.]+ ms of which is waiting": f"{waiting_ms(ddp):.1f} ms of which is waiting",
        r"(?s)network +strategy .*?(?=\n\.\.\.\n)": terminal_table([table[0], *rows]),
        r"Equivalence: held in .*": results.fact("verdict"),
    }


def write(folder, readme):
    text = Path(readme).read_text(encoding="utf-8")
    for pattern, figure in figures(Results(folder)).items():
        text, count = re.subn(pattern, lambda _, figure=figure: figure, text)
        if count != 1:
            raise ReportError(f"{readme} has {count} places like {pattern}")
    Path(readme).write_text(text, encoding="utf-8")
