#!/usr/bin/env python3
"""A GPT's training step: ours and PyTorch's (scaled_dot_product_attention, fused AdamW), in turns.

    bench/peers/gpt_step.py BIN_DIR [--size small|wide|gpt2] [--ranks N [--sharded]] [--device cuda [--amp bf16|fp16]] [--rounds N]

Both take one thread a rank, the same sizes, and the step of forward, cross-entropy, backward and AdamW with nanoGPT's
groups; OPENBLAS_CORETYPE is left to the library. On one CPU rank ours is bench_step --model gpt, on a GPU train_single
with its steps replayed from a graph. On several it is ddprun's train_ddp, whose step has its loader too, and PyTorch's is
DistributedDataParallel over Gloo, or over NCCL on GPUs; each rank has its share of the texts and the cores that ddprun
--bind cores would give it; --sharded takes train_fsdp and PyTorch's fully_shard of each block and of the root. On GPUs the precision is bf16 (fp16 below capability 8.0), and PyTorch waits for the device
once in a run of steps. Every round runs each once, in an order that changes; the ratio is of the medians of a round, ours
over theirs, and what is printed last is the median over the rounds. 77: there is no torch, or no GPU for --device cuda.
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
    from torch.distributed.fsdp import fully_shard
    from torch_rank import cores_of
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import models

CHARACTERS = 76
# layers, heads, embedding, context, texts
SIZES = dict(small=(4, 4, 128, 64, 12), wide=(6, 6, 384, 256, 8), gpt2=(12, 12, 768, 1024, 8))
VOCABULARY = dict(gpt2=50304)  # of the others: CHARACTERS
NAMES = ("layers", "heads", "embedding", "context")
WARM_UP = 1  # steps of every run that do not count


# ---- ours -----------------------------------------------------------------------------------------------

def options_of(sizes):
    return [word for name, size in zip(NAMES, sizes) for word in (f"--{name}", str(size))]


def run(command):
    clean = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout


def our_step(case):
    """Its median milliseconds, and what share of sgemm's rate it reaches."""
    if case.device == "cuda":
        return our_training(case, [f"{case.bin}/train_single", "--cuda-graph"])
    out = run([f"{case.bin}/bench_step", "--model", "gpt", "--rounds", str(case.steps), "--batch", str(case.texts),
               *options_of(case.sizes)])
    words = dict(word.split("=", 1) for word in out.splitlines()[-1].split())
    return float(words["step_ms_p50"]), f" step_to_sgemm={words['step_to_sgemm']}"


def our_ranks(case):
    bind = [] if case.device == "cuda" else ["--bind", "cores"]
    return our_training(case, [f"{case.bin}/ddprun", *bind, "--nproc-per-node", str(case.ranks), f"{case.bin}/{'train_fsdp' if case.sharded else 'train_ddp'}"])


def our_training(case, program):
    precision = [] if case.device == "cpu" else ["--vocabulary", str(case.vocabulary), "--amp", case.amp]
    with tempfile.TemporaryDirectory() as out:
        run([*program, "--device", case.device, *precision,
             "--model", "gpt", *options_of(case.sizes), "--data", "text", "--global-batch", str(case.texts),
             "--steps", str(case.warm_up + case.steps), "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.1",
             "--no-eval", "--log-every", "1", "--out", out])
        rows = [row.split(",") for row in pathlib.Path(out, "steps.csv").read_text().split()]
        column = rows[0].index("step_ms")
        return statistics.median(float(row[column]) for row in rows[1 + case.warm_up:]), ""


# ---- PyTorch's ------------------------------------------------------------------------------------------

class Trainer:
    def __init__(self, case, texts, device, wrap=lambda model: model):
        *shape, context = case.sizes[:4]
        self.case, self.device = case, torch.device(device)
        model = models.GPT(case.vocabulary, *shape, context).to(self.device)
        self.called = wrap(model)
        self.optimizer = models.optimizer("adamw", models.decay_groups(model.parameters(), 0.1), 1e-3, fused=True)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=case.amp == "fp16")
        self.x = torch.randint(case.vocabulary, (texts, context), device=self.device)
        self.y = torch.randint(case.vocabulary, (texts * context,), device=self.device)

    def step(self):
        self.optimizer.zero_grad()
        with models.autocast(self.case.amp, self.device.type):
            output = self.called(self.x)
        self.scaler.scale(F.cross_entropy(output.float(), self.y)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def timed(self, steps):
        """Milliseconds of each step; on a GPU, which works on its own, the mean of all."""
        times = []
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(steps):
                self.step()
            torch.cuda.synchronize()
            return [1e3 * (time.perf_counter() - start) / steps]
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - start))
        return times

    def median(self, steps):
        self.timed(self.case.warm_up)
        return statistics.median(self.timed(steps))


def shard(model):
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def torch_rank(rank, case, meeting, pipe):
    """Answers a number of steps with their median milliseconds, until the number is 0; sleeps in between."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if case.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        os.sched_setaffinity(0, cores_of(rank, case.ranks))
    dist.init_process_group("nccl" if case.device == "cuda" else "gloo", rank=rank, world_size=case.ranks,
                            init_method=f"file://{meeting}")
    device = f"cuda:{rank}" if case.device == "cuda" else "cpu"
    trainer = Trainer(case, case.texts // case.ranks, device, shard if case.sharded else torch.nn.parallel.DistributedDataParallel)
    while steps := pipe.recv():
        pipe.send(trainer.median(steps))
    dist.destroy_process_group()


class TorchRanks:
    def __init__(self, case, folder):
        ranks = case.ranks
        spawn = multiprocessing.get_context("spawn")
        ends = [spawn.Pipe() for _ in range(ranks)]
        self.pipes = [mine for mine, _ in ends]
        self.processes = [spawn.Process(target=torch_rank, args=(r, case, f"{folder}/meeting", ends[r][1]),
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


class Case:
    """What both sides are told."""

    def __init__(self, arguments):
        self.bin, self.device, self.ranks, self.amp = arguments.bin, arguments.device, arguments.ranks, arguments.amp
        self.sharded = arguments.sharded
        self.sizes = (1, 2, 16, 8, 2) if arguments.quick else SIZES[arguments.size]
        self.texts, self.vocabulary = self.sizes[-1] * (arguments.ranks if self.device == "cuda" else 1), CHARACTERS
        if not arguments.quick:
            self.vocabulary = VOCABULARY.get(arguments.size, CHARACTERS)
        self.steps = 2 if arguments.quick else 30 if arguments.size == "small" else 5
        self.warm_up = WARM_UP
        if self.device == "cuda":
            self.warm_up, self.steps = 6, 2 if arguments.quick else 20  # a graph is recorded after four steps


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", help="where bench_step, train_single, ddprun, train_ddp and train_fsdp are")
    parser.add_argument("--size", choices=list(SIZES), default="small",
                        help="gpt-small, six layers of 384, or GPT-2 (124 million parameters)")
    parser.add_argument("--ranks", type=int, default=1, help="devices, of which each has a process if they are several")
    parser.add_argument("--sharded", action="store_true", help="train_fsdp beside fully_shard, on CPU ranks")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: every rank has as many texts")
    parser.add_argument("--amp", choices=["bf16", "fp16"], help="of GPUs (default: bf16, or fp16 where the card lacks it)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true",
                        help="two rounds of a tiny model: tests this script, and no speed")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        sys.exit(77)
    if arguments.device == "cuda" and not arguments.amp:
        arguments.amp = "bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16"
    if arguments.sharded and (arguments.device != "cpu" or arguments.ranks < 2):
        parser.error("--sharded is of several CPU ranks")
    if arguments.amp and arguments.device == "cpu":
        parser.error("--amp is of GPUs")
    return parser, arguments


def main():
    parser, arguments = parse_arguments()
    case = Case(arguments)
    rounds = 2 if arguments.quick else arguments.rounds
    if case.ranks < 1 or case.texts % case.ranks:
        parser.error(f"--ranks {case.ranks}: {case.texts} texts do not divide among them")
    if case.ranks == 1:
        torch.set_num_threads(1)
        trainer = Trainer(case, case.texts, case.device)
        compare(lambda: our_step(case), lambda: trainer.median(case.steps), rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        peers = TorchRanks(case, folder)
        compare(lambda: our_ranks(case), lambda: peers.median(case.steps), rounds)
        peers.close()


if __name__ == "__main__":
    main()
