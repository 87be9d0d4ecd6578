#!/usr/bin/env python3
"""Compares train_fsdp with PyTorch's fully_shard over Gloo: same initial weights, same rows on each rank.

    python3 tests/parity/check_fsdp.py BUILD_DIR     exit 77: torch or safetensors is not installed

The sizes are odd: parameters with fewer rows than ranks, of which some ranks have none, and with rows that the ranks do not
divide. Each case trains three steps of SGD with momentum: an mlp, of which every layer is a unit; a convnet, whose batch norms
keep rank 0's buffers; a gpt, whose embedding is tied and the root's. The rows of PyTorch's shards must be torch.chunk's, by
which fully_shard.h cuts; the reduced gradients of the first step and the weights and buffers after the last one agree to 1e-5
of their largest (7e-7 was seen): only the order of additions differs.
A scalar parameter is refused by both, with the same words.
"""

import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    from torch.distributed.fsdp import fully_shard
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import parity_models as models

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, ROWS = 3, 2  # of each rank
CASES = [  # ranks, model, its sizes: hidden layers; layers, heads, embedding, context
    (3, "mlp", (5, 2)), (4, "mlp", (3, 7, 2)), (3, "convnet", ()), (4, "gpt", (2, 3, 9, 7))]
SIZES = {"mlp": ["hidden"], "convnet": [], "gpt": ["layers", "heads", "embedding", "context"]}
BLOCKS = {"Block", "ConvBlock"}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def rank_rows(data, rank, world, step):
    """A rank's rows of a global batch, as DistributedSampler without shuffling distributes them."""
    rows = slice(step * ROWS * world + rank, (step + 1) * ROWS * world, world)
    return data["x"][rows], data["target"][rows]


def build_model(name, sizes, outputs):
    return models.build(name, sizes if name == "gpt" else [1, 8, 8], outputs, sizes)


def whole(tensor):
    """Returns a whole tensor; buffers are whole already."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def train(rank, world, case, folder, queue):
    """One rank of PyTorch. Rank 0 returns whole gradients and weights, each with the rows of its shards."""
    name, sizes, outputs = case
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{folder}/meeting")
    model = build_model(name, sizes, outputs)
    model.load_state_dict(load_file(f"{folder}/init"), strict=True)
    mesh = dist.init_device_mesh("cpu", (world,))
    blocks = [module for module in model.modules() if type(module).__name__ in BLOCKS]
    for unit in blocks or model.children():
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, gradients = models.optimizer("sgd", model.parameters(), 0.05, 0.9), {}
    data = load_file(f"{folder}/data")
    for step in range(STEPS):
        x, y = rank_rows(data, rank, world, step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y.flatten()).backward()
        if step == 0:
            gradients = {name: whole(p.grad) for name, p in model.named_parameters()}
        optimizer.step()
    rows = {name: [0] * world for name in gradients}
    for name, p in model.named_parameters():
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([p.to_local().shape[0] if p.to_local().numel() else 0]))
        rows[name] = [int(count) for count in counts]
    weights = {name: whole(p) for name, p in model.state_dict().items()}
    if rank == 0:
        queue.put({"gradients": {n: g.numpy() for n, g in gradients.items()}, "rows": rows,
                   "weights": {n: w.numpy() for n, w in weights.items()}})
    dist.barrier()
    dist.destroy_process_group()


def chunked(rows, world):
    """The rows of torch.chunk, as documented in fully_shard.h."""
    each = -(-rows // world)
    return [max(0, min(rows, (r + 1) * each) - r * each) for r in range(world)]


def furthest(ours, theirs, tolerance, what):
    """Returns the largest difference, in units of the tensor's largest element. The names must be the same (of a
    tied weight one of the two), and gradients must not be zero."""
    worst = 0.0
    tied = {"transformer.wte.weight", "lm_head.weight"}
    if set(ours) - tied != set(theirs) - tied or bool(tied & set(ours)) != bool(tied & set(theirs)):
        sys.exit(f"{what}: {sorted(ours)} and {sorted(theirs)}")
    for name, mine in ours.items():
        other = torch.as_tensor(theirs[name] if name in theirs else theirs[(tied - {name}).pop()])
        mine, scale = mine.to(other.dtype), other.abs().max()
        if not (mine.shape == other.shape and scale > 0):
            sys.exit(f"{what} of {name}: {tuple(mine.shape)} and {tuple(other.shape)}, the largest is {scale}")
        worst = max(worst, float((mine - other).abs().max() / scale))
    if not worst <= tolerance:
        sys.exit(f"{what}: {worst:.2e} of the largest, at most {tolerance:g} is right")
    return worst


def write_text(path, count, context):
    """The first texts of --data text, of which nine tenths are for training."""
    words = gzip.decompress(next((ROOT / "common/data/text").glob("*.txt.gz")).read_bytes()).decode()
    words = words[:len(words) * 9 // 10]
    number = {character: i for i, character in enumerate(sorted(set(words)))}
    tokens = torch.tensor([number[c] for c in words[:count * context + 1]])
    save_file({"x": tokens[:-1].view(-1, context), "target": tokens[1:].reshape(-1, context).clone()}, path)


def compare(build, world, model, sizes):
    with tempfile.TemporaryDirectory() as folder:
        names = SIZES[model]
        shape = [",".join(map(str, sizes))] if names == ["hidden"] else sizes
        options = ["--model", model, *(word for name, size in zip(names, shape) for word in (f"--{name}", size)),
                   "--data", "text" if model == "gpt" else "digits", "--momentum", 0.9, "--lr", 0.05, "--weight-decay", 0,
                   "--no-shuffle", "--schedule", "constant", "--global-batch", ROWS * world, "--steps", STEPS, "--no-eval"]
        if model == "gpt":
            write_text(f"{folder}/data", ROWS * world * STEPS, sizes[-1])
        else:
            run(f"{build}/bin/dump_data", "digits", ROWS * world * STEPS, f"{folder}/data")
        run(f"{build}/bin/ddprun", "--nproc-per-node", world, f"{build}/bin/train_fsdp", *options, "--save-init", f"{folder}/init",
            "--dump-grads", f"{folder}/gradients", "--dump-step", 0, "--save", f"{folder}/last")
        outputs = len(load_file(f"{folder}/init")["lm_head.weight"]) if model == "gpt" else 10
        spawn = multiprocessing.get_context("spawn")
        queue = spawn.SimpleQueue()
        ranks = multiprocessing.spawn(train, (world, (model, sizes, outputs), folder, queue), world, join=False)
        while not ranks.join(timeout=0.1):  # raises a rank's exception
            if not queue.empty():
                theirs = queue.get()
        gradients = furthest(load_file(f"{folder}/gradients"), theirs["gradients"], 1e-5, "gradients")
        weights = furthest(load_file(f"{folder}/last"), theirs["weights"], 1e-5, "weights")
        for name, rows in theirs["rows"].items():
            if rows != chunked(len(theirs["weights"][name]), world):
                sys.exit(f"{name}: PyTorch's ranks have {rows} rows")
        print(f"ranks={world} {model} {sizes} gradients={gradients:.1e} weights={weights:.1e}")


def refuse_scalars(folder):
    """PyTorch's error for a scalar parameter is that of ddp/fsdp/fully_shard.c."""
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{folder}/alone")
    module = torch.nn.Linear(2, 2)
    module.scale = torch.nn.Parameter(torch.tensor(1.0))
    try:
        fully_shard(module, mesh=dist.init_device_mesh("cpu", (1,)))
    except ValueError as refused:
        words = str(refused).replace("scale", "%s")
    else:
        sys.exit("PyTorch takes a scalar parameter")
    dist.destroy_process_group()
    source = re.sub(r'"\n *"', "", (ROOT / "ddp/fsdp/fully_shard.c").read_text()) # strings are joined
    if words not in source:
        sys.exit(f"PyTorch says: {words}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        refuse_scalars(folder)
    for world, model, sizes in CASES:
        compare(sys.argv[1], world, model, sizes)


if __name__ == "__main__":
    main()
