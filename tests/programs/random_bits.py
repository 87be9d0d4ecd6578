#!/usr/bin/env python3
"""random_bits.py BIN_DIR [--count N] [--seed N]: compares random pairs of runs of train_dp and train_ddp.

Both runs of a pair get the same random options of model, data, batches, optimizer, precision and files, and each
program random options of its own. If train_ddp promises equal weights, buffers and optimizer state, the checkpoints of
the two must have the same bits. A pair that a program refuses (status 2), or in which both runs diverge, is counted and
replaced by another one.

The options and conditions are those of the promise's own table (print_bits_table). The test fails if an option of the
table is never drawn; from 500 pairs on also if no pair had some option or met some condition, or if fewer than 60 % of
the pairs had a promise.
"""

import argparse
import collections
import json
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

EQUAL = "bits: weights, buffers and optimizer state equal "
ENOUGH = 500 # pairs that should meet each option and each condition
NOT_DRAWN = {
    "tf32": "GPUs only", "cuda-graph": "GPUs only", "fast-sums": "MPI only", "summary": "trains nothing",
    "units": "train_fsdp only (random_fsdp.py)", "no-reshard-after-forward": "train_fsdp only (random_fsdp.py)",
    "unshard-in-step": "train_fsdp only (random_fsdp.py)",
    "wrapper": "the user's file (tests/own)", "all-reduce": "the user's file (tests/own)",
    "dry-run": "trains nothing", "evaluate": "trains nothing",
    "memory-limit": "ends a run or changes nothing (memory_limit.sh)"}
NOT_MET = {
    "GPUs add up in another order": "GPUs only", "MPI adds up in another order": "MPI only",
    "a row of a smaller share weighs more": "train_ddp refuses it"}


# ---- drawing -----------------------------------------------------------------------------------------------------
class Pair:
    """Random options: `both` programs', and those of `dp` or `ddp` alone. A flag's value is True."""

    def __init__(self, rng):
        self.rng = rng
        self.world = rng.choice((1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5))
        self.both, self.dp, self.ddp = {"save": "last"}, {}, {}
        self.model()
        self.batches()
        self.optimization()
        self.loss()
        self.files()
        self.of_dp()
        self.of_ddp()

    def maybe(self, share, options, name, *values):
        """With the probability `share`: adds --name with one of the values."""
        if self.rng.random() < share:
            options[name] = self.rng.choice(values) if values else True

    def model(self):
        rng, both = self.rng, self.both
        model = both["model"] = rng.choice("toy mlp mlp convnet convnet resnet20 segnet segnet gpt".split())
        digits = model in ("mlp", "convnet") and rng.random() < 0.5
        samples = rng.choice((21, 24, 30, 33, 40))
        data = {"toy": "synthetic:10:5", "mlp": rng.choice(("synthetic:10:5", "synthetic:1x4x4:3")),
                "convnet": "synthetic:1x12x12:5", "resnet20": "synthetic:3x8x8:4", "segnet": "shapes:8x8"}
        self.classes = model in ("convnet", "resnet20") or digits or "4x4" in data["mlp"] and model == "mlp"
        if model == "gpt":
            both |= {"data": "../play.txt", "layers": rng.choice((1, 2)), "heads": 2, "embedding": rng.choice((8, 12)),
                     "context": rng.choice((5, 8))}
            self.maybe(0.3, both, "vocabulary", 96, 200)
        elif model == "segnet" and rng.random() < 0.4:
            both["data"] = "../pictures"
            self.maybe(0.5, both, "ignore-label", 0, 2)
        elif not digits:
            both["data"] = f"{data[model]}@{samples}"
        if model == "mlp":
            self.maybe(0.8, both, "hidden", "12", "9,7", "16,3,5")
        if model in ("convnet", "resnet20"):
            self.maybe(0.3, both, "augment")
        self.maybe(0.1, both, "device", "ref", "cpu", "auto")
        self.maybe(0.3, both, "amp", "bf16", "fp16")

    def batches(self):
        rng, both, world = self.rng, self.both, self.world
        even = rng.random() < 0.6
        both["global-batch"] = world * rng.choice((1, 2, 3, 4)) if even else rng.randint(world, 4 * world)
        if rng.random() < 0.2 and not both.get("data", "digits").startswith(("digits", "..")):
            both["epochs"] = rng.choice((1, 2))
        else:
            both["steps"] = rng.randint(3, 9)
        self.maybe(0.7, both, "drop-last")
        self.maybe(0.2, both, "no-shuffle")
        if "no-shuffle" not in both:
            self.maybe(0.2, both, "sampler-seed", 3, 1 << 30)
        self.maybe(0.5, both, "seed", rng.randrange(1 << 64))
        self.maybe(0.08, both, "accumulate-steps", 2, 2, 3)
        self.maybe(0.2, both, "link", "50,20", "10gbe", "nvlink")

    def optimization(self):
        rng, both = self.rng, self.both
        kind = rng.choice(("sgd", "adam", "adamw"))
        self.maybe(0.7 if kind == "sgd" else 1, both, "optimizer", kind)
        self.maybe(0.6, both, "weight-decay", 0, 1e-4, 0.1)
        if kind == "sgd":
            self.maybe(0.5, both, "momentum", 0.5, 0.99)
            self.maybe(0.3, both, "nesterov")
            self.maybe(0.5, both, "lr", 0.01, 0.3, 1)
        else:
            both["lr"] = rng.choice((1e-3, 1e-2, 0.1))
            self.maybe(0.3, both, "betas", "0.8,0.95", "0,0.9", "0.9,0.9999")
            self.maybe(0.3, both, "eps", 1e-3, 1e-12)
        self.maybe(0.3, both, "clip-grad-norm", 0.01, 0.5, 10)
        self.maybe(0.8, both, "schedule", "constant", "step", "cosine", "polynomial")
        if both.get("schedule") == "step":
            self.maybe(0.5, both, "gamma", 0.5, 1.5)
            self.maybe(0.5, both, "step-every", 1, 2)
        if both.get("schedule") == "polynomial":
            self.maybe(0.5, both, "power", 0.5, 2)
        if self.rng.random() < 0.2:
            both["warmup-steps"] = rng.choice((1, 2, 3))
            self.maybe(0.5, both, "warmup-start", 0.25)

    def loss(self):
        both = self.both
        if self.classes and self.rng.random() < 0.4:
            both["loss"] = "bce"
            self.maybe(0.6, both, "pos-weight", 0.5, 3)
        if both["model"] == "segnet" and self.rng.random() < 0.25:
            self.maybe(1, both, *self.rng.choice((("ohem-threshold", 1, 2), ("ohem-probability", 0.1, 0.3))))
            self.maybe(0.5, both, "ohem-min", 1, 100)

    def files(self):
        both, model = self.both, self.both["model"]
        begin = self.rng.random()
        if begin < 0.15:
            both["load-init"] = "../init"
            self.maybe(0.5, both, "strip-prefix", "module.")
        elif begin < 0.3:
            both["resume"] = "../start"
        self.maybe(0.8, both, "no-eval")
        self.maybe(0.3, both, "log-every", 1, 3)
        self.maybe(0.2, both, "save-every", 1, 2)
        self.maybe(0.2, both, "save-init", "begin")
        self.maybe(0.1, both, "profile")
        self.maybe(0.1, both, "trace", "trace.json")
        if self.rng.random() < 0.2:
            both["dump-grads"] = "grads.{step}"
            self.maybe(0.5, both, "dump-step", "0", "0,2")
        if self.rng.random() < 0.25:
            both["out"] = "out"
            self.maybe(0.5, both, "keep-epochs", 1)
            if model == "segnet" and self.rng.random() < 0.5:
                both.pop("no-eval", None)
                both["dump-images"] = 1
        if model == "gpt":
            self.maybe(0.4, both, "sample", 10)

    def of_dp(self):
        if self.rng.random() < 0.3:
            ids = list(range(self.world))
            self.rng.shuffle(ids)
            self.dp["device-ids"] = ",".join(map(str, ids))
        else:
            self.dp["devices"] = self.world
        self.maybe(0.1, self.dp, "bind", "none", "cores")

    def of_ddp(self):
        rng, ddp, model = self.rng, self.ddp, self.both["model"]
        exact = self.world in (2, 4) and self.both["global-batch"] % self.world == 0 # an exact average
        self.maybe(0.95, ddp, "sampler", *["blocked"] * 30, "interleaved")
        self.maybe(0.6 if exact else 0.95, ddp, "normalize", *["global"] * 15, "average")
        self.maybe(0.3, ddp, "backend", "auto", "shm")
        self.maybe(0.6, ddp, "bucket-cap-mb", 0, 0.0005, 0.01, 1, -1)
        self.maybe(0.3, ddp, "no-overlap")
        self.maybe(0.1, ddp, "timeout-s", 100)
        if model in ("convnet", "resnet20", "segnet"):
            self.maybe(0.2, ddp, "no-broadcast-buffers")
            self.maybe(0.05, ddp, "sync-batch-norm")
        self.maybe(0.15, ddp, rng.choice(("static-graph", "find-unused-parameters")))
        self.maybe(0.3, ddp, rng.choice(("no-gradient-as-bucket-view", "zero-optimizer")))
        self.maybe(0.12, ddp, "comm-hook", "none", "allreduce", "allreduce", "fp16", "bf16", "noop", *["powersgd"] * 2)
        if ddp.get("comm-hook") == "powersgd":
            ddp |= {"powersgd-start": 2, "powersgd-rank": rng.choice((1, 2))}
        self.maybe(0.03, ddp, "threads", 2)

    def options(self):
        return {**self.both, **self.dp, **self.ddp}


def words(options):
    return [word for name, value in options.items()
            for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]


# ---- running -----------------------------------------------------------------------------------------------------
def write_inputs(folder):
    """Writes a text, and pictures with a label for each pixel, which differ in how many pixels are labelled 2."""
    rng = random.Random(5)
    (folder / "play.txt").write_text("".join(rng.choice("abc def\n") for _ in range(600)))
    for split, count in (("train", 21), ("test", 6)):
        (folder / "pictures" / split).mkdir(parents=True)
        for i in range(count):
            name = folder / "pictures" / split / f"p{i:02}"
            labels = bytes(rng.choice((0, 0, 1, 2) if i % 2 else (0, 1)) for _ in range(64))
            name.with_suffix(".pgm").write_bytes(b"P5 8 8 255\n" + labels)
            name.with_suffix(".ppm").write_bytes(
                b"P6 8 8 255\n" + bytes(min(255, 90 * label + rng.randrange(60)) for label in labels for _ in "rgb"))


def add_prefix(path, prefix):
    """Renames all tensors of a safetensors file to prefix + name, as in a checkpoint of a wrapped model."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = {name if name == "__metadata__" else prefix + name: value
              for name, value in json.loads(content[8:end]).items() if name != "__metadata__"}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])


class Programs:
    def __init__(self, bin_dir, folder):
        self.bin, self.folder = bin_dir, folder
        self.commands = []

    def run(self, name, command):
        """Runs a command in a new folder of that name. Returns its status and its stderr."""
        where = self.folder / name
        where.mkdir()
        self.commands.append(f"(cd {name}; {shlex.join(map(str, command))})")
        done = subprocess.run(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=300)
        return done.returncode, done.stderr

    def begin(self, pair):
        """Writes the pair's initial file: weights of another seed, or a checkpoint after two steps."""
        both = {name: value for name, value in pair.both.items()
                if name not in ("save", "save-every", "out", "keep-epochs", "dump-images", "dump-grads", "dump-step",
                                "trace", "profile", "sample", "epochs", "link", "warmup-steps", "warmup-start")}
        begins = {both.pop(name, None) for name in ("load-init", "strip-prefix", "resume")} - {None}
        if "../init" in begins:
            both |= {"steps": 1, "seed": 77, "save-init": "../init", "no-eval": True}
        elif "../start" in begins:
            both |= {"steps": 2, "save": "../start", "no-eval": True}
        else:
            return 0, ""
        result = self.run("begin", [self.bin / "train_dp", *words({**both, **pair.dp})])
        if result[0] == 0 and "module." in begins:
            add_prefix(self.folder / "init", "module.")
        return result

    def differ(self):
        """Compares the checkpoints of both programs. Returns a text for each difference."""
        found = []
        for what, name in (("weights and buffers", "last"), ("optimizer state", "last.*.optimizer")):
            files = [next((self.folder / side).glob(name)) for side in ("dp", "ddp")]
            done = subprocess.run([self.bin / "compare_tensors", "--bitwise", *files], capture_output=True, text=True)
            if done.returncode != 0:
                found.append(f"{what}: {(done.stdout or done.stderr).splitlines()[-1]}")
        return found


def line_about_bits(said):
    """Returns the line about bits without the rank's number, or ""."""
    return next((line[line.index("bits: "):] for line in said.splitlines() if "bits: " in line), "")


class Totals:
    def __init__(self):
        self.count = collections.Counter()
        self.hit = collections.Counter()       # pairs by option
        self.promised = collections.Counter()  # pairs with a promise by option
        self.reasons = collections.Counter()
        self.failures = []

    def add(self, pair, said_dp, said_ddp, found):
        """Counts a pair whose runs both ended well. Returns the broken promise as a text, or None."""
        line, of_dp = line_about_bits(said_ddp), line_about_bits(said_dp)
        promised = line.startswith(EQUAL)
        self.count["promised" if promised else "not promised" if line else "of one device"] += 1
        self.hit.update(list(pair.options()))
        if promised:
            self.promised.update(list(pair.options()))
        else:
            self.count["not promised, and equal"] += bool(line) and not found
            self.reasons[line] += 1
        if promised and found:
            return f"promised, and not equal: {'; '.join(found)}"
        # train_dp's line names the options that train_ddp needs: "... ranks with --sampler blocked, unless ...".
        needed = of_dp.partition(" ranks with ")[2].partition(",")[0].split()
        if promised and not (of_dp.startswith(EQUAL) and set(needed) <= set(words(pair.ddp))):
            return f"train_ddp promises more than train_dp: {of_dp}"
        return "no line about bits" if not line and pair.world > 1 else None


def try_pair(programs, pair, totals):
    """Runs both programs and adds the pair to the totals."""
    status, said = programs.begin(pair)
    of_dp = of_ddp = (status, said)
    if status == 0:
        of_dp = of_ddp = programs.run("dp", [programs.bin / "train_dp", *words({**pair.both, **pair.dp})])
    if of_dp[0] in (0, 1):
        of_ddp = programs.run("ddp", [programs.bin / "ddprun", "--nproc-per-node", str(pair.world),
                                      programs.bin / "train_ddp", *words({**pair.both, **pair.ddp})])
    if 2 in (of_dp[0], of_ddp[0]):
        totals.count["refused"] += 1
        return
    diverged = "training has diverged" in of_dp[1] and "training has diverged" in of_ddp[1]
    if of_dp[0] == of_ddp[0] == 1 and diverged:
        totals.count["diverged"] += 1
        return
    totals.count["pairs"] += 1
    failure = (totals.add(pair, of_dp[1], of_ddp[1], programs.differ()) if of_dp[0] == of_ddp[0] == 0 else
               f"status {of_dp[0]} and {of_ddp[0]}: {of_dp[1]}{of_ddp[1]}")
    if failure:
        totals.failures.append("\n    ".join([failure, *programs.commands]))


# ---- the verdict -------------------------------------------------------------------------------------------------
def read_table(bin_dir):
    """Returns the table's options, and the reasons of its rows with a condition."""
    text = subprocess.run([bin_dir / "print_bits_table"], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in text.splitlines()]
    options = dict.fromkeys(name for row in rows for name in row[0].split("|"))
    return list(options), [reason for _, when, reason, _ in rows if when != "-"]


def check_drawn(options):
    """Compares the options that Pair draws with the table's. Returns a text for each difference."""
    drawn = {name for i in range(3000) for name in Pair(random.Random(i)).options()}
    return ([f"--{name} is in the table and never drawn: draw it, or say in NOT_DRAWN why not"
             for name in sorted(set(options) - drawn - set(NOT_DRAWN))] +
            [f"--{name} is drawn and not in the table" for name in sorted(drawn - set(options))])


def check_coverage(totals, options, reasons):
    """Returns a text for each option and condition that no pair had."""
    pairs, said = totals.count["pairs"], "\n".join(totals.reasons)
    if pairs < ENOUGH:
        return []
    missed = [f"no pair was compared with --{name}" for name in options
              if name not in NOT_DRAWN and not totals.hit[name]]
    missed += [f"no pair met the condition: {reason}" for reason in reasons
               if reason not in NOT_MET and reason not in said]
    return missed + ["fewer than 60 % had a promise"] * (totals.count["promised"] < 0.6 * pairs)


def print_summary(totals, options):
    print(f"{'option':<28}{'pairs':>6}{'promised':>10}")
    for name in options:
        print(f"--{name:<26}{totals.hit[name]:>6}{totals.promised[name]:>10}" +
              (f"  {NOT_DRAWN[name]}" if name in NOT_DRAWN else ""))
    print("\nwhy nothing was promised:")
    for line, count in totals.reasons.most_common():
        print(f"{count:>6}  {line.partition('(')[2].rstrip(')') or 'one device'}")
    print()
    for name in ("pairs", "promised", "not promised", "not promised, and equal", "of one device", "refused",
                 "diverged"):
        print(f"{totals.count[name]:>6}  {name}")


def compare_pairs(arguments, bin_dir, totals):
    """Draws and compares `count` pairs."""
    for drawn in range(arguments.first, arguments.first + 10 * arguments.count):
        if totals.count["pairs"] == arguments.count:
            return
        pair = Pair(random.Random(f"{arguments.seed} {drawn}"))
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(pathlib.Path(folder))
            programs = Programs(bin_dir, pathlib.Path(folder))
            programs.commands.append(f"draw {drawn}; alone: --seed {arguments.seed} --first {drawn} --count 1")
            try_pair(programs, pair, totals)
        if drawn % 50 == 49:
            print(f"{totals.count['pairs']} pairs", file=sys.stderr)
    totals.failures.append("most pairs are refused or diverge")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("--count", type=int, default=500, help="pairs to compare (default: 500)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: drawn")
    parser.add_argument("--first", type=int, default=0, help="the draw to begin with (default: 0)")
    arguments = parser.parse_args()
    print(f"random_bits.py --count {arguments.count} --seed {arguments.seed} --first {arguments.first}", flush=True)
    bin_dir, totals = arguments.bin.resolve(), Totals()
    options, reasons = read_table(bin_dir)
    totals.failures += check_drawn(options)
    compare_pairs(arguments, bin_dir, totals)
    totals.failures += check_coverage(totals, options, reasons)
    print_summary(totals, options)
    for failure in totals.failures:
        print(f"FAILED: {failure}")
    print(f"random_bits: {totals.count['promised']} promises in {totals.count['pairs']} pairs, "
          f"{len(totals.failures)} failures")
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
