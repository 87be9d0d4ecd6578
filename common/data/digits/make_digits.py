#!/usr/bin/env python3
"""Makes the four IDX files of this folder from scikit-learn's digits.csv.gz.

usage: make_digits.py [digits.csv.gz]

Without an argument the file is taken from the installed scikit-learn. Rows are 64 pixels of 0..16
and a label. All rows are shuffled with a fixed seed, because the file's own order puts the last
writers at the end; the first 1,500 become the training set and the other 297 the test set. A pixel
is stored as 15 times its value (0..240), so that image viewers show it.
"""
import gzip
import os
import random
import struct
import sys

TRAIN = 1500
SEED = 0


def write_idx(name, sizes, values):
    magic = 0x0800 | len(sizes)
    header = struct.pack(f">{1 + len(sizes)}I", magic, *sizes)
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, name), "wb") as file:
        # Time 0: the same rows make the same bytes.
        file.write(gzip.compress(header + bytes(values), 9, mtime=0))


def write_split(prefix, rows):
    pixels = [15 * value for row in rows for value in row[:64]]
    labels = [row[64] for row in rows]
    write_idx(f"{prefix}-images-idx3-ubyte.gz", [len(rows), 8, 8], pixels)
    write_idx(f"{prefix}-labels-idx1-ubyte.gz", [len(rows)], labels)


def main():
    if len(sys.argv) > 1:
        path = sys.argv[1]
    else:
        import sklearn

        path = os.path.join(os.path.dirname(sklearn.__file__), "datasets", "data", "digits.csv.gz")
    with gzip.open(path, "rt") as file:
        rows = [[int(float(field)) for field in line.split(",")] for line in file]
    assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
    random.Random(SEED).shuffle(rows)
    write_split("train", rows[:TRAIN])
    write_split("t10k", rows[TRAIN:])


if __name__ == "__main__":
    main()
