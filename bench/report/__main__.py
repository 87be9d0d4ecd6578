"""PYTHONPATH=bench python3 -B -m report COMMAND DIR: reads the results in DIR and writes their tables, figures and pages."""

import importlib
import sys

from .results import ReportError

# Modules whose function write takes the arguments, of which the first is DIR or a file.
COMMANDS = ("allreduce", "compare", "ladder", "paper", "peers", "player", "promises", "published", "readme", "real", "scale", "scaling")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        print(f"usage: python3 -m report {{{','.join(COMMANDS)}}} DIR ...", file=sys.stderr)
        return 2
    try:
        importlib.import_module(f".{sys.argv[1]}", "report").write(*sys.argv[2:])
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
