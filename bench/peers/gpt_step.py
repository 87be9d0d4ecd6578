#!/usr/bin/env python3
"""A GPT's training step: bench_step --model gpt and PyTorch (scaled_dot_product_attention, fused AdamW), in turns.

    bench/peers/gpt_step.py BIN_DIR [--size small|wide] [--rounds N] [--quick]     77: torch is not installed

Both take one thread, the same sizes, and the step of forward, cross-entropy, backward and AdamW with nanoGPT's
groups; OPENBLAS_CORETYPE is left to the library. Every round runs each once, in an order that changes; the ratio
is of the medians of a round, ours over theirs, and what is printed last is the median over the rounds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import models

CHARACTERS = 76
SIZES = dict(small=(4, 4, 128, 64, 12), wide=(6, 6, 384, 256, 8))  # layers, heads, embedding, context, texts


def ours(folder, sizes, steps):
    names = ("layers", "heads", "embedding", "context", "batch")
    options = [word for name, size in zip(names, sizes) for word in (f"--{name}", str(size))]
    clean = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    out = subprocess.run([f"{folder}/bench_step", "--model", "gpt", "--rounds", str(steps), *options],
                         check=True, capture_output=True, text=True, env=clean).stdout
    words = dict(word.split("=", 1) for word in out.splitlines()[-1].split())
    return float(words["step_ms_p50"]), float(words["step_to_sgemm"])


def theirs(sizes, steps):
    layers, heads, embedding, context, texts = sizes
    model = models.GPT(CHARACTERS, layers, heads, embedding, context)
    optimizer = models.optimizer("adamw", models.decay_groups(model.parameters(), 0.1), 1e-3, fused=True)
    x = torch.randint(CHARACTERS, (texts, context))
    y = torch.randint(CHARACTERS, (texts * context,))
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("bin", help="where bench_step is")
parser.add_argument("--size", choices=list(SIZES), default="small", help="gpt-small, or six layers of 384")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--quick", action="store_true", help="two rounds of a tiny model: tests this script, and no speed")
arguments = parser.parse_args()
torch.set_num_threads(1)
size = (1, 2, 16, 8, 2) if arguments.quick else SIZES[arguments.size]
rounds, steps = (2, 2) if arguments.quick else (arguments.rounds, 30 if arguments.size == "small" else 5)
ratios = []
for i in range(rounds):
    if i % 2:
        (mine, share), other = ours(arguments.bin, size, steps), theirs(size, steps)
    else:
        other, (mine, share) = theirs(size, steps), ours(arguments.bin, size, steps)
    ratios.append(mine / other)
    print(f"ours_ms={mine:.2f} pytorch_ms={other:.2f} ratio={ratios[-1]:.3f} step_to_sgemm={share:.3f}", flush=True)
print(f"ratio_p50={statistics.median(ratios):.3f}")
