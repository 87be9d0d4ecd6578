#!/usr/bin/env python3
"""A GPT's training step: ours and PyTorch's (scaled_dot_product_attention, fused AdamW), in turns.

    bench/peers/gpt_step.py BIN_DIR [--size small|wide] [--ranks N] [--rounds N] [--quick]    77: there is no torch

Both take one thread a rank, the same sizes, and the step of forward, cross-entropy, backward and AdamW with nanoGPT's
groups; OPENBLAS_CORETYPE is left to the library. On one rank ours is bench_step --model gpt. On several it is ddprun's
train_ddp, whose step has its loader too, and PyTorch's is DistributedDataParallel over Gloo; each rank has its share
of the texts and the cores that ddprun --bind cores would give it. Every round runs each once, in an order that changes;
the ratio is of the medians of a round, ours over theirs, and what is printed last is the median over the rounds.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch_rank import cores_of
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import models

CHARACTERS = 76
SIZES = dict(small=(4, 4, 128, 64, 12), wide=(6, 6, 384, 256, 8))  # layers, heads, embedding, context, texts
NAMES = ("layers", "heads", "embedding", "context")
WARM_UP = 1  # steps of every run that do not count


# ---- ours -----------------------------------------------------------------------------------------------

def options_of(sizes):
    return [word for name, size in zip(NAMES, sizes) for word in (f"--{name}", str(size))]


def run(command):
    clean = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout


def our_step(folder, sizes, steps):
    """Its median milliseconds, and what share of sgemm's rate it reaches."""
    out = run([f"{folder}/bench_step", "--model", "gpt", "--rounds", str(steps), "--batch", str(sizes[-1]),
               *options_of(sizes)])
    words = dict(word.split("=", 1) for word in out.splitlines()[-1].split())
    return float(words["step_ms_p50"]), f" step_to_sgemm={words['step_to_sgemm']}"


def our_ranks(folder, sizes, steps, ranks):
    with tempfile.TemporaryDirectory() as out:
        run([f"{folder}/ddprun", "--bind", "cores", "--nproc-per-node", str(ranks), f"{folder}/train_ddp",
             "--model", "gpt", *options_of(sizes), "--data", "text", "--global-batch", str(sizes[-1]),
             "--steps", str(WARM_UP + steps), "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.1",
             "--no-eval", "--log-every", "1", "--out", out])
        rows = [row.split(",") for row in pathlib.Path(out, "steps.csv").read_text().split()]
        column = rows[0].index("step_ms")
        return statistics.median(float(row[column]) for row in rows[1 + WARM_UP:]), ""


# ---- PyTorch's ------------------------------------------------------------------------------------------

class Trainer:
    def __init__(self, sizes, texts, wrap=lambda model: model):
        *shape, context = sizes[:4]
        model = models.GPT(CHARACTERS, *shape, context)
        self.called = wrap(model)
        self.optimizer = models.optimizer("adamw", models.decay_groups(model.parameters(), 0.1), 1e-3, fused=True)
        self.x = torch.randint(CHARACTERS, (texts, context))
        self.y = torch.randint(CHARACTERS, (texts * context,))

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad()
        F.cross_entropy(self.called(self.x), self.y).backward()
        self.optimizer.step()
        return 1e3 * (time.perf_counter() - start)

    def median(self, steps):
        return statistics.median([self.step() for _ in range(WARM_UP + steps)][WARM_UP:])


def torch_rank(rank, ranks, sizes, meeting, pipe):
    """Answers a number of steps with their median milliseconds, until the number is 0; sleeps in between."""
    os.sched_setaffinity(0, cores_of(rank, ranks))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{meeting}")
    trainer = Trainer(sizes, sizes[-1] // ranks, torch.nn.parallel.DistributedDataParallel)
    while steps := pipe.recv():
        pipe.send(trainer.median(steps))
    dist.destroy_process_group()


class TorchRanks:
    def __init__(self, sizes, ranks, folder):
        spawn = multiprocessing.get_context("spawn")
        ends = [spawn.Pipe() for _ in range(ranks)]
        self.pipes = [mine for mine, _ in ends]
        self.processes = [spawn.Process(target=torch_rank, args=(r, ranks, sizes, f"{folder}/meeting", ends[r][1]),
                                        daemon=True) for r in range(ranks)]
        for process in self.processes:
            process.start()
        for _, theirs in ends:
            theirs.close()  # so that recv fails when a rank has ended

    def median(self, steps):
        for pipe in self.pipes:
            pipe.send(steps)
        return max(pipe.recv() for pipe in self.pipes)

    def close(self):
        for pipe in self.pipes:
            pipe.send(0)
        for process in self.processes:
            process.join(20)


# ---- in turns -------------------------------------------------------------------------------------------

def compare(ours, theirs, rounds):
    ratios = []
    for i in range(rounds):
        if i % 2:
            (mine, more), other = ours(), theirs()
        else:
            other, (mine, more) = theirs(), ours()
        ratios.append(mine / other)
        print(f"ours_ms={mine:.2f} pytorch_ms={other:.2f} ratio={ratios[-1]:.3f}{more}", flush=True)
    print(f"ratio_p50={statistics.median(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", help="where bench_step, ddprun and train_ddp are")
    parser.add_argument("--size", choices=list(SIZES), default="small", help="gpt-small, or six layers of 384")
    parser.add_argument("--ranks", type=int, default=1, help="devices, of which each has a process if they are several")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true",
                        help="two rounds of a tiny model: tests this script, and no speed")
    arguments = parser.parse_args()
    sizes = (1, 2, 16, 8, 2) if arguments.quick else SIZES[arguments.size]
    rounds, steps = (2, 2) if arguments.quick else (arguments.rounds, 30 if arguments.size == "small" else 5)
    if arguments.ranks < 1 or sizes[-1] % arguments.ranks:
        parser.error(f"--ranks {arguments.ranks}: {sizes[-1]} texts do not divide among them")
    if arguments.ranks == 1:
        torch.set_num_threads(1)
        trainer = Trainer(sizes, sizes[-1])
        compare(lambda: our_step(arguments.bin, sizes, steps), lambda: trainer.median(steps), rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        peers = TorchRanks(sizes, arguments.ranks, folder)
        compare(lambda: our_ranks(arguments.bin, sizes, steps, arguments.ranks), lambda: peers.median(steps), rounds)
        peers.close()


if __name__ == "__main__":
    main()
