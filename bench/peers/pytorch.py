#!/usr/bin/env python3
"""PyTorch in eager mode and our programs, training the same models on the same data, in turns.

    bench/peers/compare.sh --one-device     builds the programs and calls this; what follows are this one's options

First the same thing must be measured: from our initial weights and on the same batches, the losses of the
first steps must agree. Then every round runs each contestant once, in turns forwards and backwards, so that
whatever disturbs the machine meets all of them; the table has medians over the rounds.

What is timed. PyTorch: blocks of steps (forward, loss, backward, SGD with momentum, zero_grad), waiting
for the device at the end of each; its batches lie on the device beforehand, and it never looks at a loss. Ours:
the median step of train_single (summary.json), with its loader, the upload of every batch, a look at every
loss, and the default schedule, by which each step has another learning rate (PyTorch's keeps its own). Warm-up steps count on neither side. --data is synthetic and made before the clock starts.

On a GPU three ratios are promised, and the exit status is 1 if one is missed or if losses disagree. On a CPU
(one thread on either side) nothing is promised. 77: torch is not installed, or the device is not here.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import models

SKIPPED = 77
LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 0.01
BLOCK = 10  # steps of PyTorch between two waits for the device
CHECKED_STEPS = 5
MODELS = {  # batch, shape of a sample, hidden layers, learning rate of the check, steps on a GPU, on a CPU
    "mlp": dict(batch=64, shape=(1, 28, 28), hidden=(1024, 1024), check_lr=LR, steps=(1000, 40)),
    "resnet20": dict(batch=256, shape=(3, 32, 32), hidden=(), check_lr=1e-4, steps=(200, 3)),
}
CLASSES, BATCHES = 10, 16
# Of a loss, relative. Products of 10 (TF32) or 8 bits (bfloat16) differ by more than those of 24.
TOLERANCE = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 3e-2}
OUR_PRECISION = {"fp32": [], "tf32": ["--tf32"], "bf16": ["--amp", "bf16"]}
PROMISES = {  # (model, precision, ours): the least ratio, and to whom
    ("mlp", "fp32", "train_single --cuda-graph"): ("PyTorch eager", 5.0),
    ("resnet20", "bf16", "train_single --cuda-graph"): ("PyTorch eager", 1.5),
    ("mlp", "fp32", "train_ddp"): ("train_single", 0.99),
    ("resnet20", "bf16", "train_ddp"): ("train_single", 0.99),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", required=True, help="where train_single, train_ddp and dump_data are")
    parser.add_argument("--device", choices=["cpu", "cuda", "auto"], default="auto")
    parser.add_argument("--model", choices=list(MODELS), action="append", help="only this one")
    parser.add_argument("--precision", choices=list(TOLERANCE), action="append",
                        help="only this one (default: all on a GPU, fp32 on a CPU)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs (default: 5)")
    parser.add_argument("--extra", action="store_true",
                        help="also PyTorch with channels_last, torch.compile and CUDA graphs")
    parser.add_argument("--quick", action="store_true",
                        help="two rounds of a few steps with small batches: tests this script, and no speed")
    arguments = parser.parse_args()
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        sys.exit(SKIPPED)
    if arguments.quick:
        arguments.rounds = 2
    arguments.models = arguments.model or list(MODELS)
    arguments.precisions = arguments.precision or (list(TOLERANCE) if arguments.device == "cuda" else ["fp32"])
    if arguments.device == "cpu" and "tf32" in arguments.precisions:
        parser.error("--precision tf32 is of GPUs")
    return arguments


class Case:
    """A model in a precision on a device: what both sides are told."""

    def __init__(self, arguments, model, precision, folder):
        settings = MODELS[model]
        self.arguments, self.model, self.precision, self.folder = arguments, model, precision, folder
        self.device, self.shape, self.hidden = arguments.device, settings["shape"], settings["hidden"]
        self.batch, self.check_lr = settings["batch"], settings["check_lr"]
        self.steps = settings["steps"][self.device == "cpu"]
        if arguments.quick:
            self.batch, self.steps = 16, 3
        self.data = f"synthetic:{'x'.join(map(str, self.shape))}:{CLASSES}@{BATCHES * self.batch}"

    # ---- ours -------------------------------------------------------------------------------------------

    def run_ours(self, program, steps, *options):
        """One run of a program; what it recorded stays in self.folder/ours."""
        command = [f"{self.arguments.bin}/{program}", "--model", self.model, "--data", self.data,
                   "--device", self.device, "--global-batch", str(self.batch), "--steps", str(steps),
                   "--momentum", str(MOMENTUM), "--no-eval",
                   "--out", f"{self.folder}/ours", *OUR_PRECISION[self.precision], *options]
        if self.hidden:
            command += ["--hidden", ",".join(map(str, self.hidden))]
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
        if done.returncode == SKIPPED:
            print(f"skipped: {done.stderr.strip()}")
        elif done.returncode != 0:
            print(f"{' '.join(command)}\n{done.stderr}", file=sys.stderr)
        if done.returncode != 0:
            sys.exit(SKIPPED if done.returncode == SKIPPED else 1)

    def speed_of_ours(self, program, *options):
        warm_up = 2 if self.device == "cpu" else 5  # with graphs a step is captured after four others
        self.run_ours(program, warm_up + self.steps, "--lr", str(LR), "--weight-decay", str(WEIGHT_DECAY),
                      "--log-every", "1000000", *options)
        return 1000 / json.loads(pathlib.Path(f"{self.folder}/ours/summary.json").read_text())["step_ms_p50"]

    def losses_of_ours(self):
        self.run_ours("train_single", CHECKED_STEPS, "--lr", str(self.check_lr), "--weight-decay",
                      str(WEIGHT_DECAY), "--log-every", "1", "--no-shuffle", "--schedule", "constant",
                      "--save-init", f"{self.folder}/init")
        rows = pathlib.Path(f"{self.folder}/ours/steps.csv").read_text().split()
        column = rows[0].split(",").index("loss")
        return [float(row.split(",")[column]) for row in rows[1:]]

    def describe_ours(self):
        return json.loads(pathlib.Path(f"{self.folder}/ours/config.json").read_text())["blas"]

    # ---- PyTorch ----------------------------------------------------------------------------------------

    def load_data(self):
        path = f"{self.folder}/data"
        subprocess.run([f"{self.arguments.bin}/dump_data", self.data, str(BATCHES * self.batch), path],
                       check=True)
        data = load_file(path)
        x, y = data["x"].to(self.device), data["target"].to(self.device)
        self.batches = list(zip(x.split(self.batch), y.split(self.batch)))

    def set_precision(self):
        fast = self.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = fast
        torch.set_float32_matmul_precision("high" if fast else "highest")

    def forward_loss(self, model, x, y):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
            return F.cross_entropy(model(x), y)

    def trainer(self, lr, channels_last=False, wrap=lambda model: model):
        """A function that does one step on a batch, and returns its loss on the device."""
        model = models.build(self.model, self.shape, CLASSES, self.hidden)
        model.load_state_dict(load_file(f"{self.folder}/init"), strict=True)
        model = model.to(self.device)
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        optimizer = models.optimizer("sgd", model.parameters(), lr, MOMENTUM, WEIGHT_DECAY)
        called = wrap(model)

        def step(x, y):
            if channels_last:
                x = x.to(memory_format=torch.channels_last)
            loss = self.forward_loss(called, x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    def graphed(self, step):
        """The step, captured on inputs that stay where they are, and replayed."""
        x, y = (t.clone() for t in self.batches[0])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                step(x, y)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(x, y)

        def replay(new_x, new_y):
            x.copy_(new_x)
            y.copy_(new_y)
            graph.replay()

        return replay

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def speed_of(self, step):
        """Steps per second: the median over blocks. The first block warms up."""
        speeds, block = [], min(BLOCK, self.steps)
        for number in range(1 + -(-self.steps // block)):
            self.wait()
            begin = time.perf_counter()
            for i in range(number * block, (number + 1) * block):
                step(*self.batches[i % BATCHES])
            self.wait()
            speeds.append(block / (time.perf_counter() - begin))
        return statistics.median(speeds[1:])

    # ---- both -------------------------------------------------------------------------------------------

    def check_losses(self):
        """The largest relative difference of the first losses, same weights and batches on both sides."""
        ours = self.losses_of_ours()
        step = self.trainer(self.check_lr)
        theirs = [step(*batch).item() for batch in self.batches[:CHECKED_STEPS]]
        worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
        agree = worst <= TOLERANCE[self.precision]
        print(f"{self.model} {self.precision}: first losses {', '.join(f'{v:.5f}' for v in ours)}; PyTorch's "
              f"differ by {worst:.1e} at most: {'ok' if agree else 'THEY DISAGREE'}", file=sys.stderr)
        return agree

    def contestants(self):
        """Name -> a function that measures it once, in steps per second."""
        eager = self.trainer(LR)
        result = {"PyTorch eager": lambda: self.speed_of(eager)}
        if self.arguments.extra:
            last = self.trainer(LR, channels_last=True)
            compiled = self.trainer(LR, wrap=torch.compile)
            result["PyTorch channels_last"] = lambda: self.speed_of(last)
            result["PyTorch torch.compile"] = lambda: self.speed_of(compiled)
            if self.device == "cuda":
                graph = self.graphed(self.trainer(LR))
                result["PyTorch CUDA graph"] = lambda: self.speed_of(graph)
        result["train_single"] = lambda: self.speed_of_ours("train_single")
        result["train_ddp"] = lambda: self.speed_of_ours("train_ddp")
        if self.device == "cuda":
            result["train_single --cuda-graph"] = lambda: self.speed_of_ours("train_single", "--cuda-graph")
            result["train_ddp --cuda-graph"] = lambda: self.speed_of_ours("train_ddp", "--cuda-graph")
        return result

    def measure(self):
        """Name -> the speeds of all rounds."""
        contestants = self.contestants()
        names, speeds = list(contestants), {name: [] for name in contestants}
        for number in range(self.arguments.rounds):
            for name in names if number % 2 == 0 else reversed(names):
                speeds[name].append(contestants[name]())
        return speeds


def rows_of(case, speeds):
    """The table's rows, and whether all promises were kept."""
    median = {name: statistics.median(values) for name, values in speeds.items()}
    rows, kept = [], True
    for name, values in speeds.items():
        promise = ""
        to, least = PROMISES.get((case.model, case.precision, name), (None, 0))
        if to and case.device == "cuda" and not case.arguments.quick:
            ratio = median[name] / median[to]
            kept = kept and ratio >= least
            promise = f"{ratio:.3f} of {to}'s, at least {least}: {'kept' if ratio >= least else 'MISSED'}"
        rows.append([case.model, case.precision, str(case.batch), name, f"{median[name]:.4g}",
                     f"{min(values):.4g}-{max(values):.4g}", f"{median[name] / median['PyTorch eager']:.2f}",
                     f"{median[name] / median['train_single']:.3f}", promise])
    return rows, kept


def machine_lines(arguments, ours):
    processor = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":")[1].strip()
            break
    theirs = f"PyTorch {torch.__version__}"
    if arguments.device == "cuda":
        theirs += (f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
                   f"on {torch.cuda.get_device_name()}")
    else:
        theirs += f", {torch.get_num_threads()} thread"
    yield f"- Processor: {processor}, {os.cpu_count()} cores; {platform.system()} {platform.release()}"
    yield f"- Ours: {ours}"
    yield f"- Theirs: {theirs}"
    yield f"- Rounds: {arguments.rounds}; steps per second are medians over them, with the range beside"
    yield f"- Command: `bench/peers/compare.sh --one-device {' '.join(sys.argv[3:])}`"


def markdown(rows):
    head = ["model", "precision", "batch", "who", "steps/s", "range", "to PyTorch eager", "to train_single",
            "promise"]
    for row in [head, ["---"] * len(head), *rows]:
        print(f"| {' | '.join(row)} |")


def main():
    arguments = parse_arguments()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    rows, all_kept, all_agree, ours = [], True, True, ""
    for model in arguments.models:
        for precision in arguments.precisions:
            with tempfile.TemporaryDirectory() as folder:
                case = Case(arguments, model, precision, folder)
                case.load_data()
                case.set_precision()
                all_agree = case.check_losses() and all_agree
                measured, kept = rows_of(case, case.measure())
                ours = case.describe_ours()
            rows += measured
            all_kept = all_kept and kept
    print("\n".join(machine_lines(arguments, ours)) + "\n")
    markdown(rows)
    if arguments.device == "cpu" or arguments.quick:
        print("\nNothing is promised here" + (": a quick run measures nothing." if arguments.quick else "."))
    sys.exit(0 if all_kept and all_agree else 1)


if __name__ == "__main__":
    main()
