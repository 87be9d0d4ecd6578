#!/usr/bin/env python3
"""Makes tests/parity/*.safetensors with PyTorch: initial weights, batches, gradients, ten losses.

    python3 tests/parity/make_fixtures.py [FILE ...]     # needs torch and safetensors

tests/parity/test_parity.c replays them with our own kernels. The files are committed; run this again only
when a model changes.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench/peers"))
import models

STEPS, BATCH = 10, 16
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
    # As autocast stores activations: in 16 bits.
    ("mlp-stored_bf16", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("mlp-stored_fp16", "mlp", (1, 8, 8), 10, (24, 16), dict(name="sgd", lr=0.1, momentum=0.9)),
    ("convnet-stored_bf16", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    ("convnet-stored_fp16", "convnet", (1, 8, 8), 10, (), dict(name="sgd", lr=0.02, momentum=0.9)),
    # A bias of keys has no effect, and as gradient what rounding left: eps keeps Adam from making it a step.
    ("gpt", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("gpt-stored_bf16", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
    ("gpt_bf16", "gpt", (2, 2, 16, 10), 13, (), dict(name="adamw", lr=0.01, weight_decay=0.1, eps=1e-5)),
]
LENGTH = 9  # tokens of a text


def make(file, name, shape, outputs, hidden, settings):
    torch.manual_seed(len(file))
    model = models.build(name, shape, outputs, hidden)
    if "stored" not in file:
        models.keep_float32(model)
    texts = name == "gpt"
    if texts:  # away from small weights, with which all tokens are attended to alike
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(8) if p.dim() > 1 else p.add_(0.3 * torch.randn_like(p))
    x = torch.randint(outputs, (STEPS * BATCH, LENGTH)) if texts else torch.randn(STEPS * BATCH, *shape)
    target = torch.randn(STEPS * BATCH, outputs) if name == "toy" else \
        torch.randint(-1, outputs, (STEPS * BATCH, *shape[1:])) if name == "segnet" else \
        (x + x.roll(1, 1)) % outputs if texts else \
        torch.randint(outputs, (STEPS * BATCH,))
    tensors = {f"init.{k}": v.clone() for k, v in model.state_dict().items()}
    tensors |= {"x": x, "target": target}
    if file == "mlp_answers":
        tensors["pos_weight"] = torch.linspace(0.5, 5, outputs)
    parameters = models.decay_groups(model.parameters(), settings["weight_decay"]) if texts else \
        model.parameters()
    optimizer = models.optimizer(parameters=parameters, **settings)
    losses = []
    for step in range(STEPS):
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
            tensors |= {f"grad.{k}": p.grad.clone() for k, p in model.named_parameters()}
        if texts:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    tensors["losses"] = torch.tensor(losses)
    tensors |= {f"final.{k}": v.clone() for k, v in model.state_dict().items()}
    save_file(tensors, HERE / f"{file}.safetensors")
    print(f"{file}: losses {losses[0]:.6f} .. {losses[-1]:.6f}")


for case in CASES:
    if len(sys.argv) < 2 or case[0] in sys.argv[1:]:
        make(*case)
