"""PYTHONPATH=bench python3 -B -m report COMMAND DIR: reads the results in DIR and writes what is made of them."""

import importlib
import sys

from .results import ReportError

# What each command does with its arguments, of which the first is DIR or a file.
COMMANDS = {
    "figure": ("section", "figure"), "section": ("section", "write"),
    **{name: (name, "write") for name in ("allreduce", "compare", "ladder", "paper", "peers", "player", "promises", "published", "scaling",
                                       "whatif")},
}


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        print(f"usage: python3 -m report {{{','.join(COMMANDS)}}} DIR ...", file=sys.stderr)
        return 2
    module, function = COMMANDS[sys.argv[1]]
    try:
        getattr(importlib.import_module(f".{module}", "report"), function)(*sys.argv[2:])
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
