#!/usr/bin/env python3
"""One rank of PyTorch, which does what peers.py asks of it: a line of JSON in, a line of JSON out.

    torch_rank.py RANK WORLD STRATEGY DEVICE FOLDER     strategy: ddp, or dp (one process for all devices)

It lives as long as all rounds of a world size: importing torch takes longer than what is measured. Between
two requests it sleeps. Every rank has one thread and the cores that `ddprun --bind cores` would give it.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import models

WARM_UP = 3  # all-reduces that do not count


class Rank:
    def __init__(self, rank, world, strategy, device, folder):
        self.rank, self.world, self.strategy = rank, world, strategy
        self.device = torch.device(device, rank) if device == "cuda" else torch.device("cpu")
        torch.set_num_threads(1)
        if device == "cuda":
            torch.cuda.set_device(self.device)
        self.is_ddp = strategy == "ddp" and world > 1
        if self.is_ddp:
            dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=world,
                                    init_method=f"file://{os.path.abspath(folder)}/meeting-{world}")

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def batches(self, path, batch):
        """This rank's rows of each global batch, which DataParallel's one process has whole."""
        data = load_file(path)
        x, y = data["x"].to(self.device), data["target"].to(self.device)
        share = batch // self.world if self.is_ddp else batch
        first = self.rank * share if self.is_ddp else 0
        starts = range(first, len(x) - batch + first + 1, batch)
        return [(x[s:s + share], y[s:s + share]) for s in starts]

    def train(self, model, shape, classes, hidden, batch, steps, lr, momentum, init, data, gradients):
        """Steps from the weights `init`; the milliseconds of each. Rank 0 writes the first one's gradients."""
        module = models.build(model, shape, classes, hidden)
        module.load_state_dict(load_file(init), strict=True)
        module = module.to(self.device)
        called = module
        if self.is_ddp:
            ids = [self.rank] if self.device.type == "cuda" else None
            called = torch.nn.parallel.DistributedDataParallel(module, device_ids=ids)
        elif self.strategy == "dp":
            called = torch.nn.DataParallel(module, device_ids=list(range(self.world)))
        optimizer = models.optimizer("sgd", module.parameters(), lr, momentum)
        batches, times = self.batches(data, batch), []
        for step in range(steps):
            x, y = batches[step % len(batches)]
            begin = time.perf_counter()
            optimizer.zero_grad()
            F.cross_entropy(called(x), y).backward()
            optimizer.step()
            self.wait()
            times.append(1e3 * (time.perf_counter() - begin))
            if step == 0 and self.rank == 0:
                save_file({n: p.grad.contiguous().cpu() for n, p in module.named_parameters()}, gradients)
        return {"ms": times}

    def allreduce(self, count, iterations):
        """As bench_allreduce: fill, meet, time, check every element; the slowest rank's microseconds."""
        pattern = torch.arange(count).mul(7).remainder(1024).float().to(self.device)
        wanted, buffer = pattern * (self.world * (self.world + 1) / 2), torch.empty_like(pattern)
        times, wrong = [], 0
        for _ in range(WARM_UP + iterations):
            torch.mul(pattern, self.rank + 1, out=buffer)
            dist.barrier()
            self.wait()
            begin = time.perf_counter()
            dist.all_reduce(buffer)
            self.wait()
            times.append(1e6 * (time.perf_counter() - begin))
            wrong += int((buffer != wanted).sum())
        slowest = torch.tensor(times[WARM_UP:], device=self.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return {"us": slowest.tolist(), "wrong": wrong}

    def probe(self, size, repeats):
        """Matrix products per second: what this rank's core gives at this moment."""
        a = torch.ones(size, size)
        torch.mm(a, a)
        begin = time.perf_counter()
        for _ in range(repeats):
            torch.mm(a, a)
        return {"per_s": repeats / (time.perf_counter() - begin)}


def cores_of(rank, world):
    """As ddprun --bind cores shares them out; one process alone has the first."""
    cores = sorted(os.sched_getaffinity(0))
    if world == 1:
        return {cores[0]}
    if len(cores) < world:
        return {cores[rank % len(cores)]}
    return set(cores[rank * len(cores) // world:(rank + 1) * len(cores) // world])


def main():
    rank, world, strategy, device, folder = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    if device == "cpu":
        os.sched_setaffinity(0, cores_of(rank, world))
    this = Rank(rank, world, strategy, device, folder)
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(this, request.pop("do"))(**request)), flush=True)
    if this.is_ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
