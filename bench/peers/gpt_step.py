#!/usr/bin/env python3
"""A GPT's training step: ours and PyTorch's (scaled_dot_product_attention, fused AdamW), in turns.

    bench/peers/gpt_step.py BIN_DIR [--size small|wide|gpt2] [--ranks N [--sharded]] [--device cuda [--amp bf16|fp16]] [--rounds N]

Both take one thread a rank, the same sizes, and the step of forward, cross-entropy, backward and AdamW with nanoGPT's
groups; OPENBLAS_CORETYPE is left to the library. On one CPU rank ours is bench_step --model gpt, on a GPU train_single
with its steps replayed from a graph. On several it is ddprun's train_ddp, whose step has its loader too, and PyTorch's is
DistributedDataParallel over Gloo, or over NCCL on GPUs; each rank has its share of the texts and the cores that ddprun
--bind cores would give it (torch_rank.py); --sharded takes train_fsdp and PyTorch's fully_shard of each block and of the
root. On GPUs the precision is bf16 (fp16 below capability 8.0), and PyTorch waits for the device once in a run of steps.
Every round runs each once, in an order that changes; the ratio is of the medians of a round, ours over theirs, and what is
printed last is the median over the rounds. 77: there is no torch, or no GPU for --device cuda.
"""

import argparse
import csv
import pathlib
import statistics
import sys
import tempfile

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from peers import TorchRanks, on_first_core, run

CHARACTERS = 76
# layers, heads, embedding, context, texts
SIZES = dict(small=(4, 4, 128, 64, 12), wide=(6, 6, 384, 256, 8), gpt2=(12, 12, 768, 1024, 8))
VOCABULARY = dict(gpt2=50304)  # of the others: CHARACTERS
NAMES = ("layers", "heads", "embedding", "context")
WARM_UP = 1  # steps of every run that do not count


# ---- ours -----------------------------------------------------------------------------------------------

def options_of(sizes):
    return [word for name, size in zip(NAMES, sizes) for word in (f"--{name}", str(size))]


def our_step(case):
    """Its median milliseconds, and what share of sgemm's rate it reaches."""
    if case.device == "cuda":
        return our_training(case, [f"{case.bin}/train_single", "--cuda-graph"])
    out = run([*on_first_core(case.device), f"{case.bin}/bench_step", "--model", "gpt", "--rounds", case.steps,
               "--batch", case.texts, *options_of(case.sizes)])
    words = dict(word.split("=", 1) for word in out.splitlines()[-1].split())
    return float(words["step_ms_p50"]), f" step_to_sgemm={words['step_to_sgemm']}"


def our_ranks(case):
    bind = [] if case.device == "cuda" else ["--bind", "cores"]
    program = "train_fsdp" if case.sharded else "train_ddp"
    return our_training(case, [f"{case.bin}/ddprun", *bind, "--nproc-per-node", case.ranks, f"{case.bin}/{program}"])


def our_training(case, program):
    precision = [] if case.device == "cpu" else ["--vocabulary", case.vocabulary, "--amp", case.amp]
    with tempfile.TemporaryDirectory() as out:
        run([*program, "--device", case.device, *precision,
             "--model", "gpt", *options_of(case.sizes), "--data", "text", "--global-batch", case.texts,
             "--steps", case.warm_up + case.steps, "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.1",
             "--no-eval", "--log-every", "1", "--out", out])
        rows = csv.DictReader(pathlib.Path(out, "steps.csv").read_text().splitlines())
        return statistics.median([float(row["step_ms"]) for row in rows][case.warm_up:]), ""


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
    with tempfile.TemporaryDirectory() as case.out, TorchRanks(case, case.ranks, "fsdp" if case.sharded else "ddp") as peers:
        texts = case.texts // case.ranks
        peers.ask(do="start_gpt", vocabulary=case.vocabulary, sizes=case.sizes[:4], texts=texts, amp=case.amp)

        def theirs():
            return max(answer["ms"] for answer in peers.ask(do="gpt_steps", steps=case.steps, warm_up=case.warm_up))
        compare(lambda: (our_step if case.ranks == 1 else our_ranks)(case), theirs, rounds)


if __name__ == "__main__":
    main()
