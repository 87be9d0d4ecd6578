#!/usr/bin/env python3
"""One rank of PyTorch: executes the requests of peers.py, each a line of JSON, and answers each by a line of JSON.

    torch_rank.py RANK WORLD STRATEGY DEVICE FOLDER     strategy: ddp, fsdp, or dp (one process for all devices)

It lives for all rounds of a world size, because importing torch takes longer than a round. Between two requests it
sleeps. Every rank has one thread and the cores that `ddprun --bind cores` would give it.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import models

WARM_UP = 3  # all-reduces that do not count


class Rank:
    def __init__(self, rank, world, strategy, device, folder):
        self.rank, self.world, self.strategy = rank, world, strategy
        self.device = torch.device(device, rank) if device == "cuda" else torch.device("cpu")
        torch.set_num_threads(1)
        if device == "cuda":
            torch.cuda.set_device(self.device)
        self.has_ranks = strategy != "dp" and world > 1
        if self.has_ranks:
            dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=world,
                                    init_method=f"file://{os.path.abspath(folder)}/meeting-{world}")

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, step, steps, block):
        """Milliseconds of each step: the mean of its block of steps. Waits for the device once per block."""
        times = []
        for first in range(0, steps, block):
            begin = time.perf_counter()
            for number in range(first, first + block):
                step(number)
            self.wait()
            times += [1e3 * (time.perf_counter() - begin) / block] * block
        return times

    def batches(self, path, batch):
        """This rank's rows of each global batch; for DataParallel, whose process has all devices, all rows."""
        from safetensors.torch import load_file  # here and in train, because a GPT needs none
        data = load_file(path)
        x, y = data["x"].to(self.device), data["target"].to(self.device)
        share = batch // self.world if self.has_ranks else batch
        first = self.rank * share if self.has_ranks else 0
        starts = range(first, len(x) - batch + first + 1, batch)
        return [(x[s:s + share], y[s:s + share]) for s in starts]

    def wrapped(self, module):
        """The module in the strategy's wrapper."""
        if self.strategy == "dp":
            return torch.nn.DataParallel(module, device_ids=list(range(self.world)))
        if self.strategy == "fsdp":
            from torch.distributed.fsdp import fully_shard  # which older versions lack
            mesh = dist.init_device_mesh("cpu", (self.world,))
            for block in module.transformer.h:
                fully_shard(block, mesh=mesh)
            return fully_shard(module, mesh=mesh)
        ids = [self.rank] if self.device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(module, device_ids=ids) if self.has_ranks else module

    def train(self, model, shape, classes, hidden, batch, steps, lr, momentum, amp, block, init, data, gradients):
        """The milliseconds of steps from the weights `init`. Rank 0 writes the first one's gradients."""
        from safetensors.torch import load_file, save_file
        module = models.build(model, shape, classes, hidden)
        module.load_state_dict(load_file(init), strict=True)
        module = module.to(self.device)
        called = self.wrapped(module)
        optimizer = models.optimizer("sgd", module.parameters(), lr, momentum)
        batches = self.batches(data, batch)

        def train_step(number):
            x, y = batches[number % len(batches)]
            optimizer.zero_grad()
            with models.autocast(amp, self.device.type):
                output = called(x)
            F.cross_entropy(output.float(), y).backward()
            optimizer.step()
            if number == 0 and self.rank == 0:
                save_file({n: p.grad.contiguous().cpu() for n, p in module.named_parameters()}, gradients)

        return {"ms": self.timed(train_step, steps, block)}

    def start_gpt(self, vocabulary, sizes, texts, amp):
        """The GPT that gpt_steps trains, with nanoGPT's groups of AdamW, on random tokens."""
        model, context = models.GPT(vocabulary, *sizes).to(self.device), sizes[-1]
        self.called, self.amp = self.wrapped(model), amp
        self.optimizer = models.optimizer("adamw", models.decay_groups(model.parameters(), 0.1), 1e-3, fused=True)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=amp == "fp16")
        self.x = torch.randint(vocabulary, (texts, context), device=self.device)
        self.y = torch.randint(vocabulary, (texts * context,), device=self.device)
        return {}

    def gpt_step(self, number):
        self.optimizer.zero_grad()
        with models.autocast(self.amp, self.device.type):
            output = self.called(self.x)
        self.scaler.scale(F.cross_entropy(output.float(), self.y)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def gpt_steps(self, steps, warm_up):
        """The median milliseconds of a step; on a GPU, which is asynchronous, the mean of all steps."""
        self.timed(self.gpt_step, warm_up, warm_up)
        return {"ms": statistics.median(self.timed(self.gpt_step, steps, steps if self.device.type == "cuda" else 1))}

    def allreduce(self, count, iterations):
        """The slowest rank's microseconds per all-reduce, as in bench_allreduce: fill, barrier, time, check every element."""
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
        """Matrix products per second on this rank's core."""
        a = torch.ones(size, size)
        torch.mm(a, a)
        begin = time.perf_counter()
        for _ in range(repeats):
            torch.mm(a, a)
        return {"per_s": repeats / (time.perf_counter() - begin)}


def cores_of(rank, world):
    """The cores that ddprun --bind cores would give the rank; the first core for a single process."""
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
    if this.has_ranks:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
