#!/usr/bin/env python3
"""What our pages say about PyTorch, asked of PyTorch itself.

    python3 tests/parity/check_torch_facts.py BUILD_DIR     exit 77: torch is not installed

Two gloo ranks on the CPU train the mlp of the steps (64, 256, 128, 10; 50,826 parameters in 6 tensors). Each line
that is printed is one fact, and says which page states it. Collectives are counted by PyTorch's profiler.

The sections "In PyTorch" of the steps' pages are run, too (torch_boxes.py).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import nn
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import torch_boxes

WORLD = 2
FEATURES, HIDDEN, CLASSES = 64, (256, 128), 10
CAP_MB = 0.1  # two buckets: 136,744 bytes and 66,560


def mlp():
    sizes = (FEATURES, *HIDDEN, CLASSES)
    layers = [part for i in range(3) for part in (nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def collectives(step):
    """Returns the collectives of one call of step(), in order: (name, elements)."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
    events = sorted((e for e in profiler.events() if e.name.startswith("gloo:")), key=lambda e: e.time_range.start)
    return [(e.name.removeprefix("gloo:"), torch.Size(e.input_shapes[0]).numel()) for e in events]


def sharded():
    """Returns a step under ZeroRedundancyOptimizer, and the number of elements whose state this rank keeps."""
    model = mlp()
    wrapper = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)

    def step():
        optimizer.zero_grad()
        wrapper(torch.ones(4, FEATURES)).sum().backward()
        optimizer.step()

    step()
    step()  # rebuilds the buckets: rank 0 broadcasts the new order
    seen = collectives(step)
    kept = sum(p.numel() for group in optimizer.optim.param_groups for p in group["params"])
    return {"collectives": seen, "kept": kept}


def buckets():
    """Returns the all-reduces of the gradients in two steps, in elements."""
    wrapper = DistributedDataParallel(mlp(), bucket_cap_mb=CAP_MB)
    def step():
        wrapper(torch.ones(4, FEATURES)).sum().backward()

    return [[count for name, count in collectives(step) if name == "all_reduce" and count > 100] for _ in range(2)]


def division():
    """Each rank's gradient is 3e38; the largest float32 is 3.4e38, so a sum before the division is infinite."""
    wrapper = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    (wrapper(torch.full((1, 1), 3e38)) * torch.ones(1, 1)).sum().backward()
    return wrapper.module.weight.grad.item()


def buffers(rank):
    """Running statistics of rank 0's rows 1, 3 and rank 1's 5, 7: after one forward in training mode, then in eval
    mode."""
    norm = nn.BatchNorm1d(1)
    wrapper = DistributedDataParallel(norm)
    output = wrapper(torch.tensor([[4.0 * rank + 1], [4.0 * rank + 3]]))
    output.sum().backward()
    result = {"output": output.flatten().tolist(), "mean": norm.running_mean.item(),
              "variance": norm.running_var.item()}
    for buffer in norm.buffers():
        dist.broadcast(buffer, 0)
    return result | {"broadcast": norm.running_mean.item()}


def worker(rank, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    facts = {"sharded": sharded(), "buckets": buckets(), "division": division(), "buffers": buffers(rank)}
    dist.destroy_process_group()
    pathlib.Path(f"{folder}/{rank}.json").write_text(json.dumps(facts))


def our_buckets(build, folder):
    """Bytes of train_ddp's buckets with the same cap, by step, from rank 0's trace."""
    trace = f"{folder}/trace.json"
    subprocess.run([f"{build}/bin/ddprun", "--nproc-per-node", str(WORLD), f"{build}/bin/train_ddp", "--device", "cpu",
                    "--bucket-cap-mb", str(CAP_MB), "--steps", "2", "--no-eval", "--trace", trace],
                   check=True, capture_output=True)
    events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
    sizes = [e["args"]["bytes"] for e in events
             if e["pid"] == 0 and e["name"] == "all_reduce" and "bucket" in e["args"]]
    return [sizes[:1], sizes[1:]]


failures = 0


def fact(where, what, ok, seen):
    global failures
    failures += not ok
    print(f"{'ok' if ok else 'NOT SO'}: {what} ({where}): {seen}")


def near(a, b):
    return abs(a - b) <= 1e-5 * abs(b)


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(folder,), nprocs=WORLD)
        ranks = [json.loads(pathlib.Path(f"{folder}/{rank}.json").read_text()) for rank in range(WORLD)]
        ours = our_buckets(sys.argv[1], folder)

    zero = [facts["sharded"] for facts in ranks]
    names = [name for name, _ in zero[0]["collectives"]]
    reduced, sent = [sum(count for name, count in zero[0]["collectives"] if name == wanted)
                     for wanted in ("all_reduce", "broadcast")]
    fact("step 20", "ZeroRedundancyOptimizer: one all_reduce, then a broadcast for each of 6 tensors",
         names == ["all_reduce"] + 6 * ["broadcast"], names)
    fact("step 20", "whole tensors for each rank, 32,768 and 18,058 elements",
         [z["kept"] for z in zero] == [32768, 18058], [z["kept"] for z in zero])
    # In a group of W an all_reduce moves each element 2 (W - 1) times, and a broadcast W - 1 times.
    ratio = (2 * reduced + sent) / (2 * reduced)
    fact("step 20", "1.5 times the bytes of DDP", reduced == sent == 50826 and ratio == 1.5, ratio)

    first, second = ranks[0]["buckets"]
    fact("step 12", "the first step has one bucket, the second as many as the cap makes",
         first == [50826] and second == [34186, 16640], [first, second])
    padded = [[(4 * count + 63) // 64 * 64 for count in step] for step in (first, second)]
    fact("step 12", "train_ddp has the same, each bucket in whole cache lines", ours == padded, ours)

    divided = [facts["division"] for facts in ranks]
    fact("step 9", "gradients are divided before the sum", all(near(g, 3e38) for g in divided), divided)

    norms = [facts["buffers"] for facts in ranks]
    fact("step 15", "normalised by the variance over n",
         all(abs(n["output"][1] - 1) < 1e-4 for n in norms), norms[0]["output"])
    fact("step 15", "the running variance takes the one over n - 1",
         all(near(n["variance"], 0.9 + 0.1 * 2) for n in norms), [n["variance"] for n in norms])
    means = [n["mean"] for n in norms]
    fact("dp-to-ddp 4 and 9", "after the last forward the ranks' buffers differ", means[0] != means[1], means)
    after = [n["broadcast"] for n in norms]
    fact("dp-to-ddp 4 and 9", "a broadcast of each makes them equal", after[0] == after[1] == means[0], after)
    for where, what, ok, seen in torch_boxes.run(mlp):
        fact(where, what, ok, seen)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
