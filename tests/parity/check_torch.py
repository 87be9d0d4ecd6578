#!/usr/bin/env python3
"""Compares the programs with PyTorch on the spot: same initial weights, same batches.

    python3 tests/parity/check_torch.py BUILD_DIR     exit 77: torch or safetensors is not installed

For each model: train_single runs ten steps on the shipped digits (gpt: on the shipped text; segnet: on
shapes, from all pixels, then from the hard ones, among which the threshold decides in some steps and the
least number in others),
PyTorch repeats them from train_single's own initial weights, and the losses must agree (relative). The
final checkpoint must load with load_state_dict(strict=True) and agree with PyTorch's weights, and its
optimizer's file with PyTorch's optimizer: momentum_buffer, exp_avg, exp_avg_sq and step. Losses may differ
by 5e-7 (1.5e-7 was seen, and float32 rounds by 6e-8), weights and state by ten times as much (5e-7 was seen):
1 - beta2 of a rounded beta2 moves exp_avg_sq by 1.3e-5. For resnet20 and segnet, with smaller steps, it is 1e-4:
among the 20,000 relu inputs per image one now and then lies within rounding of 0 and switches the other way,
which is no error but moves the whole path (PyTorch in float32 strays as far from PyTorch in float64), and of
the momentum, which is a sum of gradients, by percents.

In mixed precision PyTorch runs under autocast, for fp16 with its own GradScaler, whose scale must be ours at
every step (convnet's overflows once). It also stores activations and the gradients of biases in 16 bits, we
in 32: a relative error of 2^-9 (bf16) or 2^-12 (fp16) each, and among the maxima of convnet's pools that are
equal after it, another one may be chosen. The tolerances are a few times what that was seen to make.

Shared weights go both ways: PyTorch loads what we save, and we load what PyTorch saves, with all names or
with the name that safetensors.torch.save_model keeps.
"""

import csv
import functools
import gzip
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file, save_model
    from torch import nn
    from torch.optim import lr_scheduler as lr
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import parity_models as models

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, BATCH, LR = 10, 60, 0.05
EXACT = 5e-7  # only the order of additions differs
SHAPES = "shapes:16x16@600"
HARD = dict(threshold=1.3, least=2600)
def ohem(output, target, probability, least):
    """OhemCrossEntropy as published (HRNet): selects pixels by the probability of the true class, with a minimum
    count over all pixels."""
    losses = F.cross_entropy(output, target, ignore_index=-1, reduction="none")[target >= 0]
    of_class = F.softmax(output, 1).gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)[target >= 0]
    ordered, index = of_class.sort()
    threshold = max(ordered[min(least, ordered.numel() - 1)], probability)
    return losses[index][ordered < threshold].mean()


CASES = [  # model, hidden, options of train_single, PyTorch's optimizer, PyTorch's loss, tolerance
    ("mlp", "256,128", [], {}, F.cross_entropy, EXACT),
    ("mlp", "33", ["--nesterov", "--weight-decay", "0.01"], dict(nesterov=True, weight_decay=0.01),
     F.cross_entropy, EXACT),
    ("mlp", "64,64,64", ["--optimizer", "adamw", "--lr", "0.01"], dict(name="adamw", lr=0.01),
     F.cross_entropy, EXACT),
    ("mlp", "64", ["--optimizer", "adam", "--lr", "0.01", "--weight-decay", "0.1", "--betas", "0.8,0.99",
                   "--eps", "1e-4"],
     dict(name="adam", lr=0.01, weight_decay=0.1, betas=(0.8, 0.99), eps=1e-4), F.cross_entropy, EXACT),
    ("mlp", "64", ["--optimizer", "adamw", "--lr", "0.003", "--betas", "0.9,0.9999", "--eps", "1e-5"],
     dict(name="adamw", lr=0.003, betas=(0.9, 0.9999), eps=1e-5), F.cross_entropy, EXACT),
    ("mlp", "64", ["--loss", "bce", "--pos-weight", "3", "--lr", "0.5"], dict(lr=0.5),
     lambda output, y: F.binary_cross_entropy_with_logits(
         output, F.one_hot(y, output.shape[1]).float(), pos_weight=torch.full([output.shape[1]], 3.0)), EXACT),
    ("mlp", "32", ["--schedule", "step", "--step-every", "3", "--gamma", "0.5", "--warmup-steps", "4",
                   "--warmup-start", "0.2"],
     dict(schedule=lambda o: [lr.LinearLR(o, 0.2, total_iters=4), lr.StepLR(o, 3, 0.5)]), F.cross_entropy, EXACT),
    ("mlp", "32", ["--schedule", "polynomial", "--power", "2.5"],
     dict(schedule=lambda o: [lr.PolynomialLR(o, STEPS, 2.5)]), F.cross_entropy, EXACT),
    ("mlp", "32", ["--schedule", "cosine", "--warmup-steps", "4", "--warmup-start", "0.5"],
     dict(schedule=lambda o: [lr.LinearLR(o, 0.5, total_iters=4), lr.CosineAnnealingLR(o, STEPS - 4)]),
     F.cross_entropy, EXACT),
    ("mlp", "64", ["--clip-grad-norm", "0.5"], dict(clip=0.5), F.cross_entropy, EXACT),
    ("convnet", "", [], {}, F.cross_entropy, EXACT),
    ("convnet", "", ["--clip-grad-norm", "0.2", "--accumulate-steps", "3"], dict(clip=0.2, parts=3),
     F.cross_entropy, EXACT),
    ("resnet20", "", ["--lr", "0.0002"], dict(lr=0.0002, state=5e-2), F.cross_entropy, 1e-4),
    ("segnet", "", ["--data", SHAPES, "--lr", "0.005"], dict(lr=0.005, state=5e-2), models.pixel_loss, 1e-4),
    ("segnet", "", ["--data", SHAPES, "--lr", "0.005", "--ohem-threshold", str(HARD["threshold"]),
                    "--ohem-min", str(HARD["least"])],
     dict(lr=0.005), functools.partial(models.pixel_loss, **HARD), 1e-4),
    ("segnet", "", ["--data", SHAPES, "--lr", "0.005", "--ohem-probability", "0.3", "--ohem-min", "2600"],
     dict(lr=0.005, state=5e-2), lambda output, y: ohem(output, y, 0.3, 2600), 5e-4),
    ("segnet", "", ["--data", SHAPES, "--lr", "0.005", "--accumulate-steps", "4"],
     dict(lr=0.005, parts=4, state=5e-2), models.pixel_loss, 1e-4),
    ("mlp", "256,128", ["--amp", "bf16"], dict(amp="bf16"), F.cross_entropy, 1e-3),
    ("mlp", "256,128", ["--amp", "fp16"], dict(amp="fp16"), F.cross_entropy, 1e-4),
    ("convnet", "", ["--amp", "bf16", "--lr", "0.005"], dict(amp="bf16", lr=0.005), F.cross_entropy, 2e-3),
    ("convnet", "", ["--amp", "fp16", "--global-batch", "4", "--lr", "0.02"],
     dict(amp="fp16", lr=0.02, batch=4), F.cross_entropy, 5e-3),
    ("convnet", "", ["--amp", "fp16", "--global-batch", "4", "--lr", "0.02", "--clip-grad-norm", "1"],
     dict(amp="fp16", lr=0.02, batch=4, clip=1), F.cross_entropy, 5e-3),
    # The gradient of the keys' bias is rounding error: eps keeps Adam from amplifying it.
    ("gpt", "", ["--data", "text", "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.1", "--eps", "1e-5",
                 "--clip-grad-norm", "1"],
     dict(name="adamw", lr=0.001, weight_decay=0.1, eps=1e-5, clip=1), F.cross_entropy, EXACT),
    # Layer norms have weight decay, too.
    ("gpt", "", ["--data", "text", "--optimizer", "adam", "--lr", "0.001", "--weight-decay", "0.1", "--eps", "1e-5"],
     dict(name="adam", lr=0.001, weight_decay=0.1, eps=1e-5), F.cross_entropy, EXACT),
    ("gpt", "", ["--data", "text", "--weight-decay", "0.1"], dict(weight_decay=0.1), F.cross_entropy, EXACT),
]
GPT_SMALL = (4, 4, 128, 64)


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


def run(*command):
    return subprocess.run(command, check=True, capture_output=True)


def shapes(build, folder):
    run(f"{build}/bin/dump_data", SHAPES, str(STEPS * BATCH), f"{folder}/data")
    data = load_file(f"{folder}/data")
    return data["x"], data["target"]


def text():
    words = gzip.decompress(next((ROOT / "common/data/text").glob("*.txt.gz")).read_bytes()).decode()
    words = words[:len(words) * 9 // 10]
    number = {character: i for i, character in enumerate(sorted(set(words)))}
    tokens = torch.tensor([number[c] for c in words])
    count = STEPS * BATCH * GPT_SMALL[3]
    return tokens[:count].view(-1, GPT_SMALL[3]), tokens[1:count + 1].view(-1, GPT_SMALL[3])


def run_ours(build, folder, model, hidden, options):
    command = [f"{build}/bin/train_single", "--model", model, "--steps", str(STEPS), "--no-shuffle",
               "--global-batch", str(BATCH), "--lr", str(LR), "--schedule", "constant",
               "--weight-decay", "0", "--log-every", "1", "--no-eval",
               "--save-init", f"{folder}/init.safetensors",
               "--save", f"{folder}/last.safetensors", "--out", folder, *options]
    if hidden:
        command += ["--hidden", hidden]
    run(*command)
    with open(f"{folder}/steps.csv") as file:
        rows = list(csv.DictReader(file))
    return [[float(row[name]) for row in rows] for name in ("loss", "scale", "lr")]


def scheduler(optimizer, make):
    """One schedule, or a warm-up of four steps followed by a schedule."""
    parts = make(optimizer)
    return parts[0] if len(parts) == 1 else lr.SequentialLR(optimizer, parts, milestones=[4])


def run_torch(folder, model, settings, loss_of, x, y):
    model.load_state_dict(load_file(f"{folder}/init.safetensors"), strict=True)
    settings = dict(name="sgd", lr=LR) | settings
    amp, batch = settings.pop("amp", "none"), settings.pop("batch", BATCH)
    clip, parts = settings.pop("clip", None), settings.pop("parts", 1)
    make = settings.pop("schedule", lambda o: [lr.ConstantLR(o, 1, total_iters=0)])
    parameters = model.parameters()
    if isinstance(model, models.GPT) and settings["name"] == "adamw":
        parameters = models.decay_groups(parameters, settings["weight_decay"])
    optimizer = models.optimizer(parameters=parameters, **settings)
    scaler = torch.amp.GradScaler("cpu", enabled=amp == "fp16")
    schedule = scheduler(optimizer, make)
    losses, scales, rates = [], [], []
    for step in range(STEPS):
        scales.append(scaler.get_scale())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        losses.append(0)
        for part in range(parts):
            first, count = step * batch + part * batch // parts, batch // parts
            with models.autocast(amp):
                output = model(x[first:first + count])
            wanted = y[first:first + count]
            loss = loss_of(output.float(), wanted.flatten() if isinstance(model, models.GPT) else wanted) / parts
            scaler.scale(loss).backward()
            losses[-1] += loss.item()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    return losses, scales, rates, optimizer


def load_optimizer(folder, model):
    """Returns the tensors of a checkpoint's optimizer file by kind: {kind: {parameter: tensor}}."""
    with safe_open(f"{folder}/last.safetensors", "pt") as file:
        tensors = load_file(f"{folder}/{file.metadata()['optimizer_file']}")
    kinds = {}
    for name, _ in model.named_parameters():
        for full in [full for full in tensors if full.rpartition(".")[0] == name]:
            kinds.setdefault(full.rpartition(".")[2], {})[name] = tensors.pop(full)
    assert not tensors, f"whose are these? {list(tensors)}"
    return kinds


def state_distances(ours, model, optimizer):
    """Returns the relative difference of each kind of state from PyTorch's, over all parameters."""
    distances = {}
    for kind, tensors in ours.items():
        if kind == "step" and not any("step" in state for state in optimizer.state.values()):
            continue  # PyTorch's SGD has no step count
        pairs = [(tensors[name].double().flatten(), optimizer.state[p][kind].double().flatten())
                 for name, p in model.named_parameters()]
        a, b = (torch.cat(side) for side in zip(*pairs))
        distances[kind] = ((a - b).norm() / b.norm()).item()
    wanted = {kind for state in optimizer.state.values() for kind, value in state.items() if value is not None}
    assert wanted <= set(distances), f"PyTorch has {wanted}, the file {set(ours)}"
    return distances


def check(build, model_name, hidden, options, settings, loss_of, tolerance):
    sizes = [int(n) for n in hidden.split(",")] if hidden else []
    settings = dict(state=10 * tolerance) | settings
    allowed = settings.pop("state")
    with tempfile.TemporaryDirectory() as folder:
        x, y = shapes(build, folder) if model_name == "segnet" else text() if model_name == "gpt" else digits()
        shape = GPT_SMALL if model_name == "gpt" else tuple(x.shape[1:])
        ours, scales, rates = run_ours(build, folder, model_name, hidden, options)
        outputs = load_file(f"{folder}/init.safetensors")["lm_head.weight"].shape[0] if model_name == "gpt" else \
            int(y.max()) + 1
        reference = models.build(model_name, shape, outputs, sizes)
        theirs, their_scales, their_rates, optimizer = run_torch(folder, reference, settings, loss_of, x, y)
        loaded = models.build(model_name, shape, outputs, sizes)
        loaded.load_state_dict(load_file(f"{folder}/last.safetensors"), strict=True)
        states = state_distances(load_optimizer(folder, reference), reference, optimizer)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    flat = [torch.cat([t.double().flatten() for t in m.state_dict().values()])
            for m in (loaded, reference)]
    distance = ((flat[0] - flat[1]).norm() / flat[1].norm()).item()
    name = " ".join([model_name, hidden, *options])
    ok = len(ours) == STEPS and worst <= tolerance and distance <= 10 * tolerance
    ok = ok and max(states.values()) <= allowed and states.get("step", 0) == 0
    ok = ok and scales == their_scales and all(abs(a - b) <= 1e-8 * b for a, b in zip(rates, their_rates))
    print(f"{name}: loss {theirs[0]:.6f} .. {theirs[-1]:.6f}, largest relative difference of a loss "
          f"{worst:.1e}, of the weights {distance:.1e}, of the "
          f"state {max(states.values()):.1e}, scale {scales[0]:g} .. {scales[-1]:g}: "
          f"{'ok' if ok else 'DIFFERS'}")
    return ok


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 5), nn.Linear(3, 5)
        self.decoder.weight = self.encoder.weight


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def check_tied(build):
    with tempfile.TemporaryDirectory() as folder:
        file = {name: f"{folder}/{name}" for name in ("ours", "all", "one", "back")}
        model, other = Tied(), Tied()
        run(f"{build}/bin/parity_files", file["ours"])
        ours = load_file(file["ours"])
        model.load_state_dict(ours, strict=True)
        ok = [equal(model.state_dict(), ours), not equal(other.state_dict(), ours)]
        save_file({name: t.clone() for name, t in other.state_dict().items()}, file["all"])
        save_model(other, file["one"])
        ok.append(len(load_file(file["one"])) + 1 == len(load_file(file["all"])))
        for name in ("all", "one"):
            run(f"{build}/bin/parity_files", file[name], file["back"])
            ok.append(equal(other.state_dict(), load_file(file["back"])))
    print(f"shared weights, both ways: {'ok' if all(ok) else f'DIFFERS {ok}'}")
    return all(ok)


torch.set_num_threads(1)
results = [check(sys.argv[1], *case) for case in CASES] + [check_tied(sys.argv[1])]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(0 if all(results) else 1)
