#!/usr/bin/env python3
"""Compares train_fsdp with PyTorch's fully_shard over Gloo: same initial weights, same rows on each rank.

    python3 tests/parity/check_fsdp.py BUILD_DIR     exit 77: torch or safetensors is not installed

The sizes are odd: parameters with fewer rows than ranks, and with rows that the ranks do not divide. Each case trains three
steps of SGD with momentum on an mlp, of which every layer is a unit. The rows of PyTorch's shards must be torch.chunk's, by
which fully_shard.h cuts; the reduced gradients of the first step and the weights after the last one agree to 1e-5 of their
largest (3e-7 was seen): only the order of additions differs.
A scalar parameter is refused by both, with the same words.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    import torch.nn.functional as F
    from safetensors.torch import load_file
    from torch.distributed.fsdp import fully_shard
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))
import models

STEPS, ROWS = 3, 2  # of each rank
CASES = [  # ranks, hidden layers of an mlp
    (3, "5,2"), (4, "3,7,2")]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def rank_rows(data, rank, world, step):
    """A rank's rows of a global batch as DistributedSampler without shuffling hands them out."""
    rows = slice(step * ROWS * world + rank, (step + 1) * ROWS * world, world)
    return data["x"][rows], data["target"][rows]


def train(rank, world, hidden, folder, queue):
    """One rank of PyTorch: rank 0 answers with whole gradients and weights, each with its shards' rows."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{folder}/meeting")
    model = models.build("mlp", [1, 8, 8], 10, [int(size) for size in hidden.split(",")])
    model.load_state_dict(load_file(f"{folder}/init"), strict=True)
    mesh = dist.init_device_mesh("cpu", (world,))
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, gradients = models.optimizer("sgd", model.parameters(), 0.05, 0.9), {}
    data = load_file(f"{folder}/data")
    for step in range(STEPS):
        x, y = rank_rows(data, rank, world, step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if step == 0:
            gradients = {name: p.grad.full_tensor().clone() for name, p in model.named_parameters()}
        optimizer.step()
    rows = {name: [0] * world for name in gradients}
    for name, p in model.named_parameters():
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([p.to_local().shape[0] if p.to_local().numel() else 0]))
        rows[name] = [int(count) for count in counts]
    weights = {name: p.full_tensor() for name, p in model.state_dict().items()}
    if rank == 0:
        queue.put({"gradients": {n: g.numpy() for n, g in gradients.items()}, "rows": rows,
                   "weights": {n: w.detach().numpy() for n, w in weights.items()}})
    dist.barrier()
    dist.destroy_process_group()


def chunked(rows, world):
    """torch.chunk's rows, as fully_shard.h states them."""
    each = -(-rows // world)
    return [max(0, min(rows, (r + 1) * each) - r * each) for r in range(world)]


def furthest(ours, theirs, tolerance, what):
    """Largest difference, in units of the tensor's largest; names must be the same, gradients not zero."""
    worst = 0.0
    if set(ours) != set(theirs):
        sys.exit(f"{what}: {sorted(ours)} and {sorted(theirs)}")
    for name, mine in ours.items():
        other = torch.as_tensor(theirs[name])
        scale = other.abs().max()
        if not (mine.shape == other.shape and scale > 0):
            sys.exit(f"{what} of {name}: {tuple(mine.shape)} and {tuple(other.shape)}, the largest is {scale}")
        worst = max(worst, float((mine - other).abs().max() / scale))
    if not worst <= tolerance:
        sys.exit(f"{what}: {worst:.2e} of the largest, at most {tolerance:g} is right")
    return worst


def compare(build, world, hidden):
    with tempfile.TemporaryDirectory() as folder:
        options = ["--model", "mlp", "--hidden", hidden, "--data", "digits", "--momentum", 0.9, "--lr", 0.05, "--weight-decay", 0, "--no-shuffle", "--schedule", "constant",
                   "--global-batch", ROWS * world, "--steps", STEPS, "--no-eval"]
        run(f"{build}/bin/dump_data", "digits", ROWS * world * STEPS, f"{folder}/data")
        run(f"{build}/bin/ddprun", "--nproc-per-node", world, f"{build}/bin/train_fsdp", *options, "--save-init", f"{folder}/init",
            "--dump-grads", f"{folder}/gradients", "--dump-step", 0, "--save", f"{folder}/last")
        spawn = multiprocessing.get_context("spawn")
        queue = spawn.SimpleQueue()
        ranks = multiprocessing.spawn(train, (world, hidden, folder, queue), world, join=False)
        theirs = queue.get()
        ranks.join()
        gradients = furthest(load_file(f"{folder}/gradients"), theirs["gradients"], 1e-5, "gradients")
        weights = furthest(load_file(f"{folder}/last"), theirs["weights"], 1e-5, "weights")
        for name, rows in theirs["rows"].items():
            if rows != chunked(len(theirs["weights"][name]), world):
                sys.exit(f"{name}: PyTorch's ranks have {rows} rows")
        print(f"ranks={world} hidden={hidden} gradients={gradients:.1e} weights={weights:.1e}")


def refuse_scalars(folder):
    """PyTorch's words for a scalar parameter are those of ddp/fsdp/fully_shard.c."""
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
    source = (ROOT / "ddp/fsdp/fully_shard.c").read_text().replace('"\n                               "', "")
    if words not in source:
        sys.exit(f"PyTorch says: {words}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        refuse_scalars(folder)
    for world, hidden in CASES:
        compare(sys.argv[1], world, hidden)


if __name__ == "__main__":
    main()
