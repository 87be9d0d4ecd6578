#!/usr/bin/env python3
"""random_fsdp.py BIN_DIR [--count N] [--seed N]: compares random pairs of runs of train_ddp and train_fsdp.

Both runs of a pair get the same random options; train_fsdp's units, overlap and resharding are drawn in addition. If
train_fsdp promises train_ddp's weights, buffers and optimizer state, the checkpoints of the two must have the same bits.
A pair that a program refuses (status 2), or in which both runs diverge, is counted and drawn anew.

If the build has MPI and mpirun is installed, one pair in six runs over it. From 300 pairs on it is a failure if fewer than
200 had a promise, or if a value of a dimension (below) was never drawn.
"""

import argparse
import collections
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from random_bits import EQUAL, Pair, Programs, words, write_inputs

ENOUGH, PROMISES = 300, 200
DIMENSIONS = {
    "world": {2, 3, 4, 5, 6, 7}, "model": set("toy mlp convnet resnet20 segnet gpt".split()),
    "units": {"blocks", "layers", "root"}, "overlap": {True, False}, "reshard": {True, False}, "early": {True, False},
    "accumulate": {True, False}, "amp": {"none", "bf16", "fp16"}, "clip": {True, False}, "resumed": {True, False},
    "normalize": {"average", "global"}, "sampler": {"blocked", "interleaved"}}


class FsdpPair(Pair):
    """`both`: the options of train_ddp and train_fsdp; `fsdp`: those of train_fsdp alone."""

    def __init__(self, rng):
        self.fsdp = {}
        super().__init__(rng)
        both = self.both
        if both["model"] != "toy" and rng.random() < 0.15:
            both["accumulate-steps"] = 2
        self.maybe(0.8, self.fsdp, "units", "blocks", "layers", "root")
        self.maybe(0.3, self.fsdp, "no-overlap")
        self.maybe(0.3, self.fsdp, "no-reshard-after-forward")
        if "no-overlap" not in self.fsdp:
            self.maybe(0.5, self.fsdp, "unshard-in-step")

    def batches(self):
        self.world = self.rng.randint(2, 7)
        super().batches()

    def of_dp(self):
        pass

    def of_ddp(self):
        rng, both = self.rng, self.both
        self.maybe(0.5, both, "sampler", "blocked", "interleaved")
        if both.get("sampler") != "blocked": # else the option is refused
            both["global-batch"] = self.world * rng.choice((1, 2, 3))
        self.maybe(0.6, both, "normalize", "global", "average")
        self.maybe(0.2, both, "backend", "auto", "shm")
        self.maybe(0.6, self.ddp, "bucket-cap-mb", 0, 0.01, -1)
        if both["model"] in ("convnet", "resnet20", "segnet"):
            self.maybe(0.2, both, "sync-batch-norm")
        self.maybe(0.03, both, "threads", 2)

    def dimensions(self):
        both, fsdp = self.both, self.fsdp
        return {"world": self.world, "model": both["model"], "units": fsdp.get("units", "blocks"),
                "overlap": "no-overlap" not in fsdp, "reshard": "no-reshard-after-forward" not in fsdp, "early": "unshard-in-step" in fsdp,
                "accumulate": both.get("accumulate-steps", 1) > 1, "amp": both.get("amp", "none"),
                "clip": "clip-grad-norm" in both, "resumed": "resume" in both,
                "normalize": both.get("normalize", "average"), "sampler": both.get("sampler", "interleaved"),
                "backend": "mpi" if both.get("backend") == "mpi" else "shm"}


class FsdpPrograms(Programs):
    def start(self, pair, name, program, options):
        if options.get("backend") == "mpi":
            starter = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", pair.world]
        else:
            starter = [self.bin / "ddprun", "--nproc-per-node", pair.world]
        return self.run(name, [str(word) for word in [*starter, self.bin / program, *words(options)]])

    def begin(self, pair):
        """Writes the pair's initial file with train_ddp."""
        names = {"load-init", "strip-prefix", "resume"} & set(pair.both)
        if not names:
            return 0, ""
        plain = {name: pair.both[name] for name in (
            "model", "data", "hidden", "layers", "heads", "embedding", "context", "vocabulary", "global-batch",
            "optimizer", "lr", "momentum", "nesterov", "betas", "sampler", "loss", "pos-weight") if name in pair.both}
        save = {"save": "../start", "steps": 2} if "resume" in names else {"save-init": "../init", "steps": 1, "seed": 77}
        pair.both.pop("strip-prefix", None)
        return self.start(pair, "begin", "train_ddp", {**plain, **save, "no-eval": True})

    def differ(self):
        found = []
        for what, name in (("weights and buffers", "last"), ("optimizer state", "last.*.optimizer")):
            files = [next((self.folder / side).glob(name)) for side in ("ddp", "fsdp")]
            done = subprocess.run([self.bin / "compare_tensors", "--bitwise", *files], capture_output=True, text=True)
            if done.returncode != 0:
                found.append(f"{what}: {(done.stdout or done.stderr).splitlines()[-1]}")
        return found


def try_pair(programs, pair, count):
    """Runs both programs. Returns the broken promise as a text, or None."""
    status, said = programs.begin(pair)
    of_ddp = of_fsdp = status, said
    if status == 0:
        of_ddp = of_fsdp = programs.start(pair, "ddp", "train_ddp", {**pair.both, **pair.ddp})
    if of_ddp[0] in (0, 1):
        of_fsdp = programs.start(pair, "fsdp", "train_fsdp", {**pair.both, **pair.fsdp})
    refused = {2} if pair.both.get("backend") != "mpi" else {1, 2} # mpirun's own status is 1
    if refused & {of_ddp[0], of_fsdp[0]} and "training has diverged" not in of_ddp[1] + of_fsdp[1]:
        count["refused"] += 1
        return None
    if of_ddp[0] == of_fsdp[0] == 1 and all("training has diverged" in said for _, said in (of_ddp, of_fsdp)):
        count["diverged"] += 1
        return None
    if (of_ddp[0], of_fsdp[0]) != (0, 0):
        return f"status {of_ddp[0]} and {of_fsdp[0]}: {of_ddp[1][-600:]}{of_fsdp[1][-600:]}"
    found = programs.differ()
    promised = f"{EQUAL}train_ddp's" in of_fsdp[1]
    count["pairs"] += 1
    count["promised"] += promised
    for dimension, value in pair.dimensions().items():
        count[f"{dimension} {value}"] += promised
    return f"promised, and not equal: {'; '.join(found)}" if promised and found else None


def has_mpi(bin_dir):
    """Returns whether both programs can run here under Open MPI's mpirun."""
    if not shutil.which("mpirun"):
        return False
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", bin_dir / "train_fsdp", "--backend",
               "mpi", "--steps", "1", "--no-eval"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("--count", type=int, default=ENOUGH, help=f"pairs to compare (default: {ENOUGH})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: drawn")
    parser.add_argument("--first", type=int, default=0, help="the draw to begin with (default: 0)")
    arguments = parser.parse_args()
    print(f"random_fsdp.py --count {arguments.count} --seed {arguments.seed} --first {arguments.first}", flush=True)
    bin_dir, count, failures = arguments.bin.resolve(), collections.Counter(), []
    mpi = arguments.count >= ENOUGH and has_mpi(bin_dir)
    for drawn in range(arguments.first, arguments.first + 10 * arguments.count):
        if count["pairs"] == arguments.count:
            break
        rng = random.Random(f"{arguments.seed} {drawn}")
        pair = FsdpPair(rng)
        if mpi and drawn % 6 == 0:
            pair.both["backend"] = "mpi"
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(pathlib.Path(folder))
            programs = FsdpPrograms(bin_dir, pathlib.Path(folder))
            failure = try_pair(programs, pair, count)
        if failure:
            failures.append("\n    ".join([failure, f"draw {drawn}", *programs.commands]))
    missed = [f"{dimension} {value}" for dimension, values in DIMENSIONS.items() for value in values
              if not count[f"{dimension} {value}"]]
    if arguments.count >= ENOUGH:
        failures += [f"no promise with {what}" for what in missed]
        failures += ["fewer than 200 promises"] * (count["promised"] < PROMISES)
    for what in sorted(count):
        print(f"{count[what]:>6}  {what}")
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"random_fsdp: {count['promised']} promises in {count['pairs']} pairs, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
