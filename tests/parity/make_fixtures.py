#!/usr/bin/env python3
"""Makes tests/parity/*.safetensors with PyTorch: initial weights, batches, gradients, a loss per step, and of
models in float32 the optimizer's state after the last step. optimizers.safetensors has optimizers without a model.

    python3 tests/parity/make_fixtures.py [FILE ...]     # needs torch and safetensors

tests/parity/test_parity.c replays them with our own kernels. The files are committed; run this again only
when a model changes. resnet20 begins with our own initial weights (but bn2's), and needs
build/bin/train_single.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import parity_models as models

HERE = pathlib.Path(__file__).resolve().parent
BATCH = 16
CASES = [  # file, model, shape of a sample, outputs, hidden, optimizer settings
    ("mlp", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("mlp_nesterov", "mlp", (1, 8, 8), 10, (16,),
     dict(name="sgd", lr=0.1, momentum=0.8, weight_decay=0.01, nesterov=True)),
    ("convnet", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    ("convnet_adamw", "convnet", (1, 8, 8), 10, (), dict(name="adamw", lr=0.002, weight_decay=0.01)),
    ("mlp_answers", "mlp", (1, 8, 8), 10, (16,), dict(name="sgd", lr=0.5, momentum=0.9)),
    ("mlp_adam", "mlp", (1, 8, 8), 10, (16,),
     dict(name="adam", lr=0.01, weight_decay=0.1, betas=(0.8, 0.99), eps=1e-4)),
    ("segnet", "segnet", (2, 8, 8), 3, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    ("toy", "toy", (10, 1, 1), 5, (), dict(name="sgd", lr=0.05, momentum=0.0)),
    ("mlp_bf16", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("mlp_fp16", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("convnet_bf16", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    ("convnet_fp16", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    # Activations are stored in 16 bits, as by autocast.
    ("mlp-stored_bf16", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("mlp-stored_fp16", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("convnet-stored_bf16", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    ("convnet-stored_fp16", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    # The keys' bias has no effect; its gradient is rounding error, which eps keeps Adam from amplifying.
    ("gpt", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("gpt-stored_bf16", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("gpt_bf16", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("gpt-stored_fp16", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("gpt_fp16", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("resnet20", "resnet20", (3, 8, 8), 10, (), dict(name="sgd", lr=0.01, momentum=0.9)),
    ("resnet20-stored_bf16", "resnet20", (3, 8, 8), 10, (), dict(name="sgd", lr=0.01, momentum=0.9)),
    ("resnet20-stored_fp16", "resnet20", (3, 8, 8), 10, (), dict(name="sgd", lr=0.01, momentum=0.9)),
    ("segnet-stored_bf16", "segnet", (2, 8, 8), 3, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    ("segnet-stored_fp16", "segnet", (2, 8, 8), 3, (), dict(name="sgd", lr=0.02, momentum=0.9)),
]
PARTS = [  # file, model, shape of a sample, outputs: few layers, so few roundings, for tight bounds
    ("resnet20-block_bf16", "resnet20", (3, 8, 8), 10),
    ("resnet20-block_fp16", "resnet20", (3, 8, 8), 10),
    ("segnet-level_bf16", "segnet", (2, 8, 8), 3),
    ("segnet-level_fp16", "segnet", (2, 8, 8), 3),
]
# Optimizers alone, on given gradients. With each of these lr, rounding it to float32 changes the step size; of the
# usual values of beta2, rounding 0.9999 changes 1 - beta2 most.
OPTIMIZERS = [
    ("sgd", dict(name="sgd", lr=0.013, momentum=0.0, weight_decay=0.03)),
    ("sgd_momentum", dict(name="sgd", lr=0.013, momentum=0.9, weight_decay=0.03)),
    ("sgd_nesterov", dict(name="sgd", lr=0.013, momentum=0.8, weight_decay=0.03, nesterov=True)),
    ("adam", dict(name="adam", lr=0.0062, weight_decay=0.1, betas=(0.8, 0.9999), eps=1e-3)),
    ("adamw", dict(name="adamw", lr=0.0064, weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8)),
    ("adamw_slow", dict(name="adamw", lr=0.0042, weight_decay=0.1, betas=(0.9, 0.9999), eps=1e-3)),
]
LENGTH = 9  # tokens of a text
# These files use the initial values of the file named as their model, and have the first HEAD of each result.
BEGUN = ("gpt_fp16", "gpt-stored_fp16", "resnet20-stored_bf16", "resnet20-stored_fp16", "segnet-stored_bf16",
         "segnet-stored_fp16", *(part[0] for part in PARTS))
HEAD = 512


def initial_of(name, shape, outputs):
    """The initial weights of train_single."""
    with tempfile.TemporaryDirectory() as folder:
        data = f"synthetic:{'x'.join(map(str, shape))}:{outputs}"
        subprocess.run([HERE.parents[1] / "build/bin/train_single", "--device", "cpu", "--model", name, "--data", data,
                        "--seed", "0", "--steps", "1", "--no-eval", "--save-init", f"{folder}/init"],
                       check=True, stdout=subprocess.DEVNULL)
        return load_file(f"{folder}/init")


def state_of(optimizer, name, parameter, prefix=""):
    """The first HEAD elements of each tensor of a parameter's state: momentum_buffer, or exp_avg, exp_avg_sq and
    step."""
    state = {key: value for key, value in optimizer.state[parameter].items() if value is not None}
    return {f"{prefix}{name}.{key}": head(value.detach(), True) for key, value in state.items()}


def head(tensor, small):
    return tensor.flatten()[:HEAD].clone() if small and tensor.numel() > HEAD else tensor.clone()


def new_begin(model, file, name, shape, outputs, steps):
    """Returns a model's initial weights (not resnet20's) and one batch per step."""
    texts = name == "gpt"
    if texts:  # larger weights, because small ones give all tokens equal attention
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(8) if p.dim() > 1 else p.add_(0.3 * torch.randn_like(p))
    x = torch.randint(outputs, (steps * BATCH, LENGTH)) if texts else torch.randn(steps * BATCH, *shape)
    target = torch.randn(steps * BATCH, outputs) if name == "toy" else \
        torch.randint(-1, outputs, (steps * BATCH, *shape[1:])) if name == "segnet" else \
        (x + x.roll(1, 1)) % outputs if texts else \
        torch.randint(outputs, (steps * BATCH,))
    tensors = {f"init.{k}": v.clone() for k, v in model.state_dict().items()
               if name != "resnet20" or k.endswith("bn2.weight")}
    if file == "mlp_answers":
        tensors["pos_weight"] = torch.linspace(0.5, 5, outputs)
    return tensors | {"x": x, "target": target}


def begin(model, file, name, shape, outputs, steps):
    """Loads the initial weights into the model. Returns the initial values, and whether they are this file's own."""
    if name == "resnet20":  # small residual branches: in a deep network each rounding affects all later layers
        model.load_state_dict({k: v / 8 if k.endswith("bn2.weight") else v
                               for k, v in initial_of(name, shape, outputs).items()})
    if file not in BEGUN:
        return new_begin(model, file, name, shape, outputs, steps), True
    tensors = load_file(HERE / f"{name}.safetensors")
    model.load_state_dict({k[5:]: v for k, v in tensors.items() if k.startswith("init.")}, strict=name != "resnet20")
    return tensors, False


def make(file, name, shape, outputs, hidden, settings):
    torch.manual_seed(len(file))
    steps = 4 if name == "resnet20" or file in BEGUN and name == "segnet" else 10
    model = models.build(name, shape, outputs, hidden)
    if "stored" not in file:
        models.keep_float32(model)
    start, own = begin(model, file, name, shape, outputs, steps)
    x, target, tensors = start["x"], start["target"], start if own else {}
    small, texts = not own or name == "resnet20", name == "gpt"
    parameters = models.decay_groups(model.parameters(), settings["weight_decay"]) if texts else \
        model.parameters()
    optimizer = models.optimizer(parameters=parameters, **settings)
    losses = []
    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        with models.autocast(file.partition("_")[2]):
            output = model(x[rows])
        output = output.float()
        loss = F.mse_loss(output, target[rows]) if name == "toy" else \
            F.binary_cross_entropy_with_logits(output, F.one_hot(target[rows], outputs).float(),
                                               pos_weight=tensors["pos_weight"]) \
            if file == "mlp_answers" else \
            models.pixel_loss(output, target[rows], threshold=1.2, least=270) if name == "segnet" else \
            F.cross_entropy(output, target[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            tensors |= {f"grad.{k}": head(p.grad, small) for k, p in model.named_parameters()}
        if texts:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    tensors["losses"] = torch.tensor(losses)
    tensors |= {f"final.{k}": head(v, small) for k, v in model.state_dict().items()}
    if "_bf16" not in file and "_fp16" not in file:
        for k, p in model.named_parameters():
            tensors |= state_of(optimizer, k, p, "state.")
    save_file(tensors, HERE / f"{file}.safetensors")
    print(f"{file}: losses {losses[0]:.6f} .. {losses[-1]:.6f}")


def run_part(name, model, x):
    if name == "resnet20":
        return model.layer1[0](model.conv1(x))
    full = model.enc1[0](x)
    return model.head(model.dec1(F.interpolate(F.max_pool2d(full, 2), scale_factor=2, mode="nearest") + full))


def make_part(file, name, shape, outputs):
    model = models.build(name, shape, outputs)
    start, _ = begin(model, file, name, shape, outputs, 1)
    with models.autocast(file.partition("_")[2]):
        output = run_part(name, model, start["x"][:BATCH])
    output = output.float()
    target = torch.arange(output.numel()) * 7919 % 1000 / 500 - 1
    ((output - target.view_as(output)) ** 2).sum().div(64).backward()
    tensors = {"output": head(output.detach(), True)}
    tensors |= {f"grad.{k}": head(p.grad, True) for k, p in model.named_parameters() if p.grad is not None}
    save_file(tensors, HERE / f"{file}.safetensors")
    print(f"{file}: {len(tensors)} tensors")


def adam_scalars(step, lr, betas, weight_decay, double=lambda x: x):
    """The factors of PyTorch's Adam in update number `step`. double: the type of the stored lr until then."""
    lr = double(lr)
    return torch.tensor([lr, 1 - lr * weight_decay, lr / (1 - betas[0] ** step), (1 - betas[1] ** step) ** 0.5],
                        dtype=torch.float64).float()


def make_optimizers(file, cases, steps=5, count=61):
    """All gradients of one element have the sign of its weight: nothing cancels, so every element can be compared
    relative to itself."""
    torch.manual_seed(0)
    size = torch.logspace(-4, 1, count) * torch.where(torch.arange(count) % 3 == 0, -1.0, 1.0)
    weight, gradients = size.sign() * (1 + torch.rand(count)), size * (0.5 + torch.rand(steps, count))
    tensors = {"weight": weight, "gradients": gradients}
    for name, settings in cases:
        parameter = torch.nn.Parameter(weight.clone())
        optimizer = models.optimizer(parameters=[parameter], **settings)
        for step in range(steps):
            parameter.grad = gradients[step].clone()
            optimizer.step()
        tensors[f"{name}.weight"] = parameter.detach()
        tensors |= state_of(optimizer, name, parameter)
        if settings["name"] != "sgd":
            numbers = dict(lr=settings["lr"], betas=settings["betas"],
                           weight_decay=settings["weight_decay"] if settings["name"] == "adamw" else 0)
            tensors[f"{name}.scalars"] = adam_scalars(steps, **numbers)
            rounded = adam_scalars(steps, **numbers, double=lambda x: torch.tensor(x).float().item())
            assert not torch.equal(tensors[f"{name}.scalars"], rounded), f"{name}: choose another lr"
    # Gradients whose norm is of the order of the 1e-6 that clip_grad_norm_ adds to it.
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = 1e-7 * gradients[0]
    torch.nn.utils.clip_grad_norm_([parameter], 1e-6)
    tensors["clip.gradient"] = parameter.grad
    save_file(tensors, HERE / f"{file}.safetensors")
    print(f"{file}: {len(tensors)} tensors")


for make_one, cases in (make, CASES), (make_part, PARTS), (make_optimizers, [("optimizers", OPTIMIZERS)]):
    for case in cases:
        if len(sys.argv) < 2 or case[0] in sys.argv[1:]:
            make_one(*case)
