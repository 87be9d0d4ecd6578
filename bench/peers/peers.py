#!/usr/bin/env python3
"""Our programs beside PyTorch's DDP and DataParallel, Open MPI and Gloo, in turns.

    bench/peers/peers.py world --bin DIR ...        all pairs of one world size, as compare.sh calls it
    bench/peers/peers.py gpt BIN_DIR [--size small|wide|gpt2] [--ranks N [--sharded]] [--device cuda [--amp bf16|fp16]] [--rounds N]

Each round runs ours and the peer one after the other, in alternating order, so that a disturbance affects both; the result is
the ratio within the round. Both have one thread per rank on the same cores. The first steps of a run do not count.

gpt: a step of forward, cross-entropy, backward and AdamW with nanoGPT's groups, beside PyTorch's (scaled_dot_product_attention,
fused AdamW). On one CPU rank ours is bench_step --model gpt, on a GPU train_single with its steps replayed from a graph. On several
it is train_ddp, whose step has its loader too, and PyTorch's is DistributedDataParallel over Gloo, or over NCCL on GPUs, each rank
with its share of the texts; --sharded takes train_fsdp and PyTorch's fully_shard of each block and of the root. On GPUs the precision
is bf16 (fp16 below capability 8.0), and PyTorch waits for the device once in a run of steps. The ratio is ours over theirs; printed
last is the median over the rounds. 77: there is no torch, or no GPU for --device cuda.

world: both start with the same weights and batches, and the gradients of the first step of the timed runs are compared tensor by
tensor. On one GPU ours is replayed from a CUDA graph, PyTorch waits for the device once in BLOCK steps, and train_ddp with a
single rank is compared with train_single.

A round is disturbed if a probe before or after it (a matrix product on the cores of the ranks) was slower than UNDISTURBED times
the probes' median. Disturbed rounds are repeated, at most as often as there were rounds.

    peers.csv       a row per round: the peer's and our median in ms, and whether it was disturbed
    gradients.csv   a row per tensor and round, from compare_tensors

The exit status is 1 if gradients disagree or a sum was wrong.
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
UNDISTURBED = 0.85
LR, MOMENTUM, CLASSES, BATCHES = 0.01, 0.9, 10, 8
MODELS = {  # shape of a sample, hidden layers, global batch, steps; the first WARM_UP of these do not count
    "mlp": dict(shape=(1, 28, 28), hidden=(1024, 1024), batch=256, steps=40),
    "convnet": dict(shape=(1, 28, 28), hidden=(), batch=240, steps=30),
    "resnet20": dict(shape=(3, 32, 32), hidden=(), batch=64, steps=12),
}
# Otherwise on one GPU, which has too little work with so few rows.
ON_ONE_GPU = {"mlp": dict(batch=64, steps=1000), "resnet20": dict(batch=256, steps=200, amp="bf16")}
WARM_UP, BLOCK = 3, 10
BUCKET = 25 * 1024 * 1024  # bytes: DDP's default bucket
# The largest difference in a tensor, relative to its largest magnitude: only the order of sums differs. In resnet20
# rounding can change the sign of a relu's input near 0, which changes a gradient by more.
TOLERANCE = {"mlp": 1e-4, "convnet": 1e-4, "resnet20": 0.1}
BF16_TOLERANCE = 0.5  # products of 8 bits, through relu and batch norm: 0.33 was seen
SIZES = dict(small=(4, 4, 128, 64, 12), wide=(6, 6, 384, 256, 8), gpt2=(12, 12, 768, 1024, 8))  # of a GPT: those of GPT_NAMES, and texts
GPT_NAMES = ("layers", "heads", "embedding", "context")


def say(text):
    print(text, file=sys.stderr, flush=True)


def environment():
    """The environment of our programs and the peers': one thread per rank; each library chooses its kernels."""
    result = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "RANK", "WORLD_SIZE")}
    result.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                  PYTHONDONTWRITEBYTECODE="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  OMPI_MCA_rmaps_base_oversubscribe="1")
    return result


def on_first_core(device):
    """The prefix of a command on one CPU device that binds it to the first core, as torch_rank.py does."""
    known = device == "cpu" and shutil.which("taskset")
    return ["taskset", "-c", min(os.sched_getaffinity(0))] if known else []


def run(command, timeout=300):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=timeout)
    if done.returncode != 0:
        sys.exit(f"error: this failed: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def run_ours(arguments, world, program, out, *options):
    """Runs one of our trainers on `world` devices; it logs every step in the folder `out`."""
    start = on_first_core(arguments.device) if world == 1 else []
    if world > 1 and program != "train_dp":
        bind = ["--bind", "cores"] if arguments.device == "cpu" else []
        start = [f"{arguments.bin}/ddprun", *bind, "--nproc-per-node", world]
    run([*start, f"{arguments.bin}/{program}", "--device", arguments.device, "--log-every", 1, "--no-eval", "--out", out, *options])


def median_ms(out, warm_up):
    with open(pathlib.Path(out, "steps.csv"), newline="") as file:
        return statistics.median([float(row["step_ms"]) for row in csv.DictReader(file)][warm_up:])


def time_both(pair, number):
    """(our milliseconds, the peer's); the order of the two runs alternates between rounds."""
    sides = [("ours", pair.time_ours), ("theirs", pair.time_theirs)]
    times = {side: measure() for side, measure in (sides if number % 2 == 0 else reversed(sides))}
    return times["ours"], times["theirs"]


class TorchRanks:
    """PyTorch's ranks of one world size, a context manager that ends them."""

    def __init__(self, arguments, world, strategy):
        count = 1 if strategy == "dp" else world
        self.ranks = [subprocess.Popen(
            [sys.executable, HERE / "torch_rank.py", str(rank), str(world), strategy, arguments.device,
             arguments.out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
            for rank in range(count)]
        self.version = self.answers()[0]["ready"]

    def answers(self):
        lines = [rank.stdout.readline() for rank in self.ranks]
        if not all(lines):
            sys.exit("error: a rank of PyTorch has ended; its own words are above")
        return [json.loads(line) for line in lines]

    def ask(self, **request):
        for rank in self.ranks:
            rank.stdin.write(json.dumps(request) + "\n")
            rank.stdin.flush()
        return self.answers()

    def probe(self):
        return min(answer["per_s"] for answer in self.ask(do="probe", size=512, repeats=8))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(20)
            except subprocess.TimeoutExpired:
                rank.kill()


class Training:
    """The training of one model on `world` devices, ours and PyTorch's."""

    kind = "train"

    def __init__(self, arguments, torch, model, world, strategy):
        self.arguments, self.torch, self.world, self.strategy = arguments, torch, world, strategy
        self.on_one_gpu = arguments.device == "cuda" and world == 1
        settings = {**MODELS[model], **(ON_ONE_GPU.get(model, {}) if self.on_one_gpu else {})}
        self.what, self.shape, self.hidden, self.amp = model, settings["shape"], settings["hidden"], settings.get("amp")
        self.batch, self.steps = settings["batch"], settings["steps"]
        self.tolerance = BF16_TOLERANCE if self.amp else TOLERANCE[model]
        if arguments.quick:
            self.batch, self.steps = 16, WARM_UP + 2
        self.peer = "PyTorch" if world == 1 else {"ddp": "PyTorch DDP", "dp": "PyTorch DP"}[strategy]
        self.data = f"synthetic:{'x'.join(map(str, self.shape))}:{CLASSES}@{BATCHES * self.batch}"
        self.folder = pathlib.Path(arguments.out, "runs", f"{model}-{strategy}-{world}")
        self.folder.mkdir(parents=True, exist_ok=True)
        run([f"{arguments.bin}/dump_data", self.data, BATCHES * self.batch, self.folder / "data"])
        self.run_ours(1, "--save-init", self.folder / "init", "--dump-grads", self.folder / "ours.grads")

    def run_ours(self, steps, *options, program="train_single"):
        if self.world > 1:
            program = f"train_{self.strategy}"
            options = [*options, *(["--devices", self.world] if self.strategy == "dp" else ["--sampler", "blocked"])]
        hidden = ["--hidden", ",".join(map(str, self.hidden))] if self.hidden else []
        precision = ["--amp", self.amp] if self.amp else []
        run_ours(self.arguments, self.world, program, self.folder / "ours", "--model", self.what, *hidden, *precision, "--data", self.data,
                 "--no-shuffle", "--global-batch", self.batch, "--steps", steps, "--lr", LR, "--momentum", MOMENTUM, "--weight-decay", 0, *options)

    def time_ours(self, **program):
        how = ["--cuda-graph"] if self.on_one_gpu else ["--dump-grads", self.folder / "ours.grads"]
        self.run_ours(self.steps, "--load-init", self.folder / "init", *how, **program)
        return median_ms(self.folder / "ours", WARM_UP)

    def time_theirs(self):
        answers = self.torch.ask(do="train", model=self.what, shape=self.shape, classes=CLASSES,
                                 hidden=self.hidden, batch=self.batch, steps=self.steps, lr=LR,
                                 momentum=MOMENTUM, amp=self.amp, block=BLOCK if self.on_one_gpu and not self.arguments.quick else 1, init=str(self.folder / "init"),
                                 data=str(self.folder / "data"), gradients=str(self.folder / "theirs.grads"))
        return statistics.median(max(times) for times in
                                 list(zip(*(answer["ms"] for answer in answers)))[WARM_UP:])

    def check(self, number, rows):
        """True if the gradients of the first step agree; a row per tensor."""
        command = [f"{self.arguments.bin}/compare_tensors", self.folder / "theirs.grads",
                   self.folder / "ours.grads", "--csv"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        agree, tensors = True, list(csv.DictReader(done.stdout.splitlines()))
        for row in tensors:
            held = 0 < float(row["max_b"]) and float(row["max_abs"]) <= self.tolerance * float(row["max_b"])
            agree = agree and held
            rows.writerow([self.what, self.peer, self.world, number, row["tensor"], row["count"], row["max_abs"],
                           row["max_rel"], row["max_ulp"], row["max_b"], int(held)])
        if not agree or not tensors:
            say(f"error: {self.what}, world {self.world}: gradients disagree with {self.peer}'s\n{done.stderr}")
        return agree and bool(tensors)

    def describe_blas(self):
        return json.loads((self.folder / "ours/config.json").read_text())["blas"]


class OneRank(Training):
    """The wrapper's cost on one GPU: train_ddp with a single rank, with train_single as its peer."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.peer = "train_single"

    def time_ours(self):
        return super().time_ours(program="train_ddp")

    def time_theirs(self):
        return super().time_ours()

    def check(self, number, rows):
        return True


class AllReduce:
    """An all-reduce of 25 MiB: ours, and Open MPI's or Gloo's (on GPUs NCCL's own, through PyTorch)."""

    kind = "all-reduce"

    def __init__(self, arguments, torch, world, peer):
        self.arguments, self.torch, self.world, self.peer = arguments, torch, world, peer
        self.bytes, self.iterations = (65536, 3) if arguments.quick else (BUCKET, 20)
        self.what = "64 KiB" if arguments.quick else "25 MiB"
        self.wrong = 0

    def time_ours(self):
        command = [f"{self.arguments.bin}/bench_allreduce", "--min-bytes", self.bytes, "--max-bytes", self.bytes,
                   "--iterations", self.iterations]
        if self.arguments.device == "cuda":
            command = [f"{self.arguments.bin}/ddprun", "--nproc-per-node", self.world, *command, "--device", "cuda"]
        else:
            command += ["--world", self.world]
        rows = [line.split() for line in run(command).splitlines() if not line.startswith("#")]
        return float(rows[1][rows[0].index("p50_us")]) / 1e3

    def time_theirs(self):
        if self.peer == "Open MPI":
            lines = run(["mpirun", "--bind-to", "core" if self.world <= os.cpu_count() else "none", "-np",
                         self.world, self.arguments.mpi, self.bytes, self.iterations])
            return statistics.median(map(float, lines.split())) / 1e3
        answers = self.torch.ask(do="allreduce", count=self.bytes // 4, iterations=self.iterations)
        self.wrong += sum(answer["wrong"] for answer in answers)
        return statistics.median(answers[0]["us"]) / 1e3

    def check(self, number, rows):
        if self.wrong:
            say(f"error: {self.peer}: {self.wrong} wrong elements in round {number}")
        return self.wrong == 0


class Rounds:
    """The rounds of one world size, with their probes."""

    def __init__(self, arguments, torch, pairs):
        self.arguments, self.torch, self.pairs = arguments, torch, pairs
        self.results = {pair: [] for pair in pairs}  # (probe, ours, theirs)
        self.probes, self.agree = [], True

    def probe(self):
        self.probes.append(self.torch.probe())
        return self.probes[-1]

    def measure(self, pair, gradients):
        number = len(self.results[pair])
        before = self.probe()
        ours, theirs = time_both(pair, number)
        self.agree = pair.check(number, gradients) and self.agree
        self.results[pair].append((min(before, self.probe()), ours, theirs))

    def is_disturbed(self, result):
        return result[0] < UNDISTURBED * statistics.median(self.probes)

    def missing(self, pair):
        good = sum(not self.is_disturbed(result) for result in self.results[pair])
        return good < self.arguments.rounds and len(self.results[pair]) < 2 * self.arguments.rounds

    def run(self, gradients):
        begun, rounds = time.monotonic(), self.arguments.rounds
        for number in range(2 * rounds):
            pairs = [pair for pair in self.pairs if number < rounds or self.missing(pair)]
            if not pairs:
                break
            self.say_how_far(number, len(pairs), time.monotonic() - begun)
            for pair in pairs:
                self.measure(pair, gradients)

    def say_how_far(self, number, pairs, seconds):
        rounds = self.arguments.rounds
        if number >= rounds:
            say(f"  round {number + 1}: {pairs} of {len(self.pairs)} pairs again, because they were disturbed")
            return
        left = int(seconds * (rounds - number) / number) if number else None
        say(f"  round {number + 1} of {rounds}" + (f", about {left // 60}:{left % 60:02} left" if number else ""))

    def write(self, rows):
        for pair, results in self.results.items():
            for number, result in enumerate(results):
                rows.writerow([pair.kind, pair.what, pair.world, pair.peer, number,
                               f"{result[1]:.5f}", f"{result[2]:.5f}", int(self.is_disturbed(result))])


def pairs_of(arguments, torch, world, strategy):
    kinds = [Training, OneRank] if arguments.device == "cuda" and world == 1 else [Training]
    pairs = [kind(arguments, torch, model, world, strategy) for model in arguments.model.split() for kind in kinds]
    if world > 1 and strategy == "ddp":
        gloo = "Gloo" if arguments.device == "cpu" else "PyTorch NCCL"
        pairs.append(AllReduce(arguments, torch, world, gloo))
        if arguments.device == "cpu" and pathlib.Path(arguments.mpi).exists():
            pairs.append(AllReduce(arguments, torch, world, "Open MPI"))
    return pairs


def measure_world(arguments):
    agree, world = True, arguments.world
    out = pathlib.Path(arguments.out)
    with open(out / "peers.csv", "w") as peers, open(out / "gradients.csv", "w") as tensors:
        rows, gradients = csv.writer(peers, lineterminator="\n"), csv.writer(tensors, lineterminator="\n")
        rows.writerow("kind,what,world,peer,round,ours_ms,theirs_ms,disturbed".split(","))
        gradients.writerow("model,peer,world,round,tensor,count,max_abs,max_rel,max_ulp,max_magnitude,held".split(","))
        for strategy in ["ddp", "dp"] if arguments.device == "cuda" and world > 1 else ["ddp"]:
            with TorchRanks(arguments, world, strategy) as torch:
                pairs = pairs_of(arguments, torch, world, strategy)
                rounds = Rounds(arguments, torch, pairs)
                rounds.run(gradients)
                rounds.write(rows)
                agree = rounds.agree and agree
                facts = [f"PyTorch {torch.version}, one thread per rank", pairs[0].describe_blas()]
    (out / "facts.txt").write_text("\n".join(facts) + "\n")
    sys.exit(0 if agree else 1)


# ---- a GPT's step -------------------------------------------------------------------------------------------------------


class GptStep:
    """A GPT on so many ranks, by us and, with torch, by PyTorch."""

    def __init__(self, arguments):
        on_gpu, quick = arguments.device == "cuda", arguments.quick
        self.arguments, self.torch, self.more = arguments, None, ""
        self.sizes = (1, 2, 16, 8, 2) if quick else SIZES[arguments.size]
        self.texts = self.sizes[-1] * (arguments.ranks if on_gpu else 1)
        self.vocabulary = 50304 if arguments.size == "gpt2" and not quick else 76
        self.warm_up = 6 if on_gpu else 1  # a graph is recorded after four steps
        self.steps = 2 if quick else 20 if on_gpu else 30 if arguments.size == "small" else 5

    def time_ours(self):
        ranks, on_gpu = self.arguments.ranks, self.arguments.device == "cuda"
        sizes = [word for name, size in zip(GPT_NAMES, self.sizes) for word in (f"--{name}", size)]
        if ranks == 1 and not on_gpu:
            out = run([*on_first_core("cpu"), f"{self.arguments.bin}/bench_step", "--model", "gpt", "--rounds", self.steps, "--batch", self.texts, *sizes])
            words = dict(word.split("=", 1) for word in out.splitlines()[-1].split())
            self.more = f" step_to_sgemm={words['step_to_sgemm']}"  # the share of sgemm's rate
            return float(words["step_ms_p50"])
        program = "train_fsdp" if self.arguments.sharded else "train_ddp" if ranks > 1 else "train_single"
        how = [*(["--vocabulary", self.vocabulary, "--amp", self.arguments.amp] if on_gpu else []), *(["--cuda-graph"] if ranks == 1 else [])]
        with tempfile.TemporaryDirectory() as out:
            run_ours(self.arguments, ranks, program, out, "--model", "gpt", *sizes, "--data", "text", "--global-batch", self.texts, "--steps",
                     self.warm_up + self.steps, "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.1", *how)
            return median_ms(out, self.warm_up)

    def time_theirs(self):
        return max(answer["ms"] for answer in self.torch.ask(do="gpt_steps", steps=self.steps, warm_up=self.warm_up))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def measure_gpt(arguments, error):
    try:
        import torch  # takes seconds, and measure_world needs none
    except ImportError as missing:
        skip(missing)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    if arguments.device == "cuda" and not arguments.amp:
        arguments.amp = "bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16"
    pair, ratios = GptStep(arguments), []
    if arguments.sharded and (arguments.device != "cpu" or arguments.ranks < 2):
        error("--sharded is of several CPU ranks")
    if arguments.amp and arguments.device == "cpu":
        error("--amp is of GPUs")
    if arguments.ranks < 1 or pair.texts % arguments.ranks:
        error(f"--ranks {arguments.ranks}: {pair.texts} texts do not divide among them")
    strategy = "fsdp" if arguments.sharded else "ddp"
    with tempfile.TemporaryDirectory() as arguments.out, TorchRanks(arguments, arguments.ranks, strategy) as pair.torch:
        pair.torch.ask(do="start_gpt", vocabulary=pair.vocabulary, sizes=pair.sizes[:4], texts=pair.texts // arguments.ranks, amp=arguments.amp)
        for number in range(2 if arguments.quick else arguments.rounds):
            ours, theirs = time_both(pair, number)
            ratios.append(ours / theirs)
            print(f"ours_ms={ours:.2f} pytorch_ms={theirs:.2f} ratio={ratios[-1]:.3f}{pair.more}", flush=True)
    print(f"ratio_p50={statistics.median(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    world, gpt = commands.add_parser("world"), commands.add_parser("gpt")
    for name, kind in (("bin", str), ("out", str), ("device", str), ("model", str), ("mpi", str), ("world", int), ("rounds", int)):
        world.add_argument(f"--{name}", required=True, type=kind)
    gpt.add_argument("bin", help="where bench_step, train_single, ddprun, train_ddp and train_fsdp are")
    gpt.add_argument("--size", choices=list(SIZES), default="small", help="gpt-small, six layers of 384, or GPT-2 (124 million parameters)")
    gpt.add_argument("--ranks", type=int, default=1, help="devices, of which each has a process if they are several")
    gpt.add_argument("--sharded", action="store_true", help="train_fsdp beside fully_shard, on CPU ranks")
    gpt.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: every rank has as many texts")
    gpt.add_argument("--amp", choices=["bf16", "fp16"], help="of GPUs (default: bf16, or fp16 where the card lacks it)")
    gpt.add_argument("--rounds", type=int, default=9)
    for command in (world, gpt):
        command.add_argument("--quick", action="store_true", help="two rounds of a few small steps: tries the command, and measures no speed")
    arguments = parser.parse_args()
    if arguments.command == "gpt":
        measure_gpt(arguments, gpt.error)
    else:
        measure_world(arguments)


if __name__ == "__main__":
    main()
