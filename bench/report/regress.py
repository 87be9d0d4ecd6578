"""regress.sh: has the training step become slower? Compares the repeats of two comparisons of compare.sh:

    bench/regress.sh BEFORE AFTER [--tolerance PERCENT]

BEFORE and AFTER are folders with a repeats.csv, the median step of every run. For each configuration that both
have it prints the ratio AFTER / BEFORE of the medians of these, and the interval that holds 95 % of the ratios of
4000 bootstrap samples of the repeats. A configuration is slower if its ratio exceeds 1 by more than PERCENT (2) and
the whole interval is above 1. Disturbed repeats do not count; a configuration needs three repeats on both sides.
Exit status: 0, 1 if something is slower, 2 for usage and when there is nothing to compare.
"""

import argparse
import random
import sys
from pathlib import Path

from .results import median, read_csv

SAMPLES = 4000


def fail(why):
    print(f"error: {why}", file=sys.stderr)
    sys.exit(2)


def repeats_of(folder):
    """Undisturbed milliseconds by configuration."""
    if not Path(folder, "repeats.csv").is_file():
        fail(f"{folder} has no repeats.csv; compare.sh writes it")
    found = {}
    for row in read_csv(Path(folder, "repeats.csv")):
        if not row.is_true("disturbed"):
            name = f"{row['model']:<9} {row['strategy']:<7} {row['world_size']:>3}"
            found.setdefault(name, []).append(row.number("step_ms_p50"))
    return found


def interval(before, after):
    draw = random.Random(1)  # a fixed seed: equal results for equal files
    ratios = sorted(median(draw.choices(after, k=len(after))) / median(draw.choices(before, k=len(before))) for _ in range(SAMPLES))
    return ratios[SAMPLES // 40], ratios[-SAMPLES // 40]


def main():
    parser = argparse.ArgumentParser(usage="bench/regress.sh BEFORE AFTER [--tolerance PERCENT]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--tolerance", type=float, default=2)
    options = parser.parse_args()
    if len(options.folders) != 2:
        fail("two folders are needed: bench/regress.sh BEFORE AFTER")
    before, after = map(repeats_of, options.folders)
    known = [name for name in before if min(len(before[name]), len(after.get(name, []))) >= 3]
    if not known:
        fail("no configuration has three undisturbed repeats in both")
    print("model     strategy devices  after/before   95 % interval")
    slower = 0
    for name in known:
        low, high = interval(before[name], after[name])
        is_slower = low > 1 + options.tolerance / 100
        slower += is_slower
        print(f"{name}  {median(after[name]) / median(before[name]):13.3f}   {low:.3f} to {high:.3f}  "
              f"{'SLOWER' if is_slower else 'faster' if high < 1 else 'same'}")
    print(f"{slower} of {len(known)} configurations are slower")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
