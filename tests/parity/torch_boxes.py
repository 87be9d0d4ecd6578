"""The sections "In PyTorch" of the tutorials' pages, run.

A page's blocks run in order, on two gloo ranks. What they may use: torch, dist, nn, DDP, rank, world_size, and fresh for each
page model (the mlp of the steps), optimizer, loss_fn, and x [30, 64] and y [30], this rank's rows. What rank 0 prints must be the
`text` block below, if there is one. A page with an `sh` block is a job of its own: its `python` block is train.py.
<!-- not run: WHY --> before a block skips the page.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TUTORIALS = pathlib.Path(__file__).resolve().parents[2] / "tutorials"
WORLD = 2


def pages():
    """Returns (step, [(kind, text), ...]) of each page that has a section "In PyTorch" with code."""
    for page in sorted(TUTORIALS.glob("[0-9][0-9]-*/README.md")):
        section = re.search(r"^## In PyTorch\n(.*?)(?=^## )", page.read_text(encoding="utf-8"), re.S | re.M)
        if section and "<!-- not run" not in section[1]:
            yield page.parent.name, re.findall(r"^```(\w+)\n(.*?)^```", section[1], re.S | re.M)


def train_ranks(rank, folder, make_model):
    """Runs the pages that are not jobs; rank 0 keeps each page's output or error."""
    os.chdir(folder)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    printed = {}
    for step, blocks in pages():
        if any(kind == "sh" for kind, _ in blocks):
            continue
        torch.manual_seed(rank)
        model = make_model()
        names = {"torch": torch, "dist": dist, "nn": nn, "DDP": DDP, "rank": rank, "world_size": WORLD, "model": model,
                 "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loss_fn": nn.CrossEntropyLoss(), "x": torch.randn(30, 64),
                 "y": torch.randint(10, (30,))}
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec("".join(text for kind, text in blocks if kind == "python"), names)
            printed[step] = output.getvalue()
        except Exception as error:
            printed[step] = f"{type(error).__name__}: {error}"
        dist.barrier()
    dist.destroy_process_group()
    pathlib.Path(f"{folder}/{rank}.json").write_text(json.dumps(printed))


def train_job(blocks, folder):
    """Runs a page's job and returns its output."""
    of = dict(blocks)
    (pathlib.Path(folder) / "train.py").write_text(of["python"])
    paths = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    job = subprocess.run(["sh", "-c", of["sh"]], cwd=folder, env=os.environ | {"PATH": paths}, capture_output=True, text=True, timeout=120)
    return job.stdout


def run(make_model):
    """Yields (page, check, whether it passed, the output) for each page."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train_ranks, args=(folder, make_model), nprocs=WORLD)
        printed = json.loads(pathlib.Path(f"{folder}/0.json").read_text())
        for step, blocks in pages():
            seen = printed[step] if step in printed else train_job(blocks, folder)
            wanted = "".join(text for kind, text in blocks if kind == "text")
            failed = re.match(r"\w*Error: ", seen)
            ok = seen == wanted if wanted else bool(seen.strip() or blocks) and not failed
            yield f"step {step[:2]}", "the lines of \"In PyTorch\" run, and print what stands there", ok, seen.strip()[:200] or "nothing"
