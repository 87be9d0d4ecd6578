#!/usr/bin/env python3
"""Compares the programs with PyTorch on the spot: same initial weights, same batches.

    python3 tests/parity/check_torch.py BUILD_DIR     exit 77: torch or safetensors is not installed

For each model: train_single runs ten steps on the shipped digits, PyTorch repeats them from
train_single's own initial weights, and the losses must agree (relative). The final checkpoint must load
with load_state_dict(strict=True) and agree with PyTorch's weights. The tolerance is 1e-5, and 1e-4 for
resnet20 with a small step: among its 20,000 relu inputs per image one now and then lies within rounding
of 0 and switches the other way, which is no error but moves its whole path.
"""

import csv
import gzip
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import models

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, BATCH, LR = 10, 60, 0.05
CASES = [  # model, hidden, optimizer options of train_single, the same for PyTorch, tolerance
    ("mlp", "256,128", [], {}, 1e-5),
    ("mlp", "33", ["--nesterov", "--weight-decay", "0.01"], dict(nesterov=True, weight_decay=0.01),
     1e-5),
    ("mlp", "64,64,64", ["--optimizer", "adamw", "--lr", "0.01"], dict(name="adamw", lr=0.01), 1e-5),
    ("convnet", "", [], {}, 1e-5),
    ("resnet20", "", ["--lr", "0.0002"], dict(lr=0.0002), 1e-4),
]


def read_idx(path):
    raw = gzip.decompress(path.read_bytes())
    dims = struct.unpack_from(f">{raw[3]}I", raw, 4)
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3]:]), dtype=torch.uint8).reshape(dims)


def digits():
    folder = ROOT / "common/data/digits"
    images = read_idx(folder / "train-images-idx3-ubyte.gz").double() / 255
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz").long()
    images = (images - images.mean()) / images.std(correction=0)
    return images.float().unsqueeze(1), labels


def run_ours(build, folder, model, hidden, options):
    command = [f"{build}/bin/train_single", "--model", model, "--steps", str(STEPS), "--no-shuffle",
               "--global-batch", str(BATCH), "--lr", str(LR), "--schedule", "constant",
               "--weight-decay", "0", "--log-every", "1", "--no-eval",
               "--save-init", f"{folder}/init.safetensors",
               "--save", f"{folder}/last.safetensors", "--out", folder, *options]
    if hidden:
        command += ["--hidden", hidden]
    subprocess.run(command, check=True, capture_output=True)
    with open(f"{folder}/steps.csv") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def run_torch(folder, model, settings, x, y):
    model.load_state_dict(load_file(f"{folder}/init.safetensors"), strict=True)
    settings = dict(name="sgd", lr=LR) | settings
    optimizer = models.optimizer(parameters=model.parameters(), **settings)
    losses = []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(build, model_name, hidden, options, settings, tolerance):
    x, y = digits()
    sizes = [int(n) for n in hidden.split(",")] if hidden else []
    with tempfile.TemporaryDirectory() as folder:
        ours = run_ours(build, folder, model_name, hidden, options)
        reference = models.build(model_name, tuple(x.shape[1:]), 10, sizes)
        theirs = run_torch(folder, reference, settings, x, y)
        loaded = models.build(model_name, tuple(x.shape[1:]), 10, sizes)
        loaded.load_state_dict(load_file(f"{folder}/last.safetensors"), strict=True)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    flat = [torch.cat([t.double().flatten() for t in m.state_dict().values()])
            for m in (loaded, reference)]
    distance = ((flat[0] - flat[1]).norm() / flat[1].norm()).item()
    name = " ".join([model_name, hidden, *options])
    ok = len(ours) == STEPS and worst <= tolerance and distance <= 10 * tolerance
    print(f"{name}: loss {theirs[0]:.6f} .. {theirs[-1]:.6f}, largest relative difference of a loss "
          f"{worst:.1e}, of the weights {distance:.1e}: {'ok' if ok else 'DIFFERS'}")
    return ok


torch.set_num_threads(1)
results = [check(sys.argv[1], *case) for case in CASES]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(0 if all(results) else 1)
