#!/usr/bin/env python3
"""Writes account/kernels.csv: registers, memory and instructions of compiled kernels in bfloat16, attention for heads
of 64 and the loss of a vocabulary.

    bench/account/sass.py NVCC CUOBJDUMP [ARCHITECTURE...]        default: 75 80 86 90

Instructions are counted by kind in the machine code: for kernels with products on tensor cores, in the loops that have these
products; for others, in the whole kernel, a loop's body once. So only ratios are meaningful. shared_words counts a load of 16
bytes as four.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CUDA = ROOT / "common/device/cuda"
SOURCES = sorted(CUDA.glob("attention*/*.cu")) + [CUDA / "attention.cu", CUDA / "loss.cu"]
LOSS = "cross_entropy_in_place_kernelI5BlockLi8ELi8E13__nv_bfloat16E"  # rows of vectors
COLUMNS = "architecture,kernel,threads,registers,shared,spilled,instructions,ffma,hmma,mufu,shared_words"
WIDTHS = {"32": 1, "64": 2, "128": 4}
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")


def is_wanted(mangled):
    return "bfloat16Li64E" in mangled or "means_kernelI13__nv_bfloat16E" in mangled or LOSS in mangled


def plain(mangled):
    """_Z16attention_kernelI... -> attention_kernel"""
    length = re.match(r"_Z(?:N\w*?|L)?(\d+)", mangled)
    return mangled[length.end():length.end() + int(length[1])]


def listing(text):
    """By kernel: address, name and operands of each instruction."""
    kernels, now = {}, None
    for line in text.splitlines():
        if "Function : " in line:
            now = kernels.setdefault(line.split(" : ")[1].strip(), [])
        found = INSTRUCTION.match(line)
        if found and now is not None:
            now.append((int(found[1], 16), found[2], found[3]))
    return kernels


def main_loops(code):
    """The smallest loops that contain all products on tensor cores; the whole kernel if it has none."""
    products = {address for address, name, _ in code if name.startswith("HMMA")}
    loops, chosen, found = [], [], set()
    for address, name, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if name.startswith("BRA") and target and int(target[1], 16) < address:
            loops.append(range(int(target[1], 16), address + 1))
    for loop in sorted(loops, key=len):
        if not found.issuperset(products & set(loop)):
            chosen.append(loop)
            found |= products & set(loop)
    return [line for line in code if any(line[0] in loop for loop in chosen)] if products and found == products else code


def instructions(text):
    """By kernel: how many of each kind, in the loops that count."""
    kernels = {}
    for kernel, code in listing(text).items():
        now = kernels[kernel] = collections.Counter()
        for _, name, _ in main_loops(code):
            kind, *suffixes = name.split(".")
            now["all"] += 1
            now[kind] += 1
            if kind == "LDS":
                now["words"] += max([WIDTHS.get(suffix, 1) for suffix in suffixes], default=1)
            if kind == "LDSM":
                now["words"] += int(suffixes[-1]) if suffixes[-1].isdigit() else 1
    return kernels


def resources(text):
    """By kernel: registers, shared memory and stack."""
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)"
    return {name: (int(reg), int(shared), int(stack) + int(local))
            for name, reg, stack, shared, local in re.findall(pattern, text)}


def measure(nvcc, cuobjdump, source, architecture):
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/kernels.cubin"
        subprocess.run([nvcc, "-std=c++17", "-O3", "--extended-lambda", f"-arch=sm_{architecture}", "-cubin", "-I", ROOT,
                        "-o", cubin, source], check=True)
        read = [subprocess.run([cuobjdump, option, cubin], check=True, capture_output=True, text=True).stdout
                for option in ("-sass", "-res-usage")]
    counts, used = instructions(read[0]), resources(read[1])
    for name in sorted(filter(is_wanted, counts), key=plain):
        count, (registers, shared, spilled) = counts[name], used[name]
        if "mma" in plain(name) and not count["HMMA"]:  # below 8.0 they only trap
            continue
        threads = 128 if "mma" in plain(name) else 256
        yield (architecture, plain(name), threads, registers, shared, spilled, count["all"], count["FFMA"], count["HMMA"],
               count["MUFU"], count["words"])


def main():
    nvcc, cuobjdump, *architectures = sys.argv[1:]
    lines = [COLUMNS]
    for architecture in architectures or ("75", "80", "86", "90"):
        for source in SOURCES:
            lines += [",".join(map(str, row)) for row in measure(nvcc, cuobjdump, source, architecture)]
    (ROOT / "bench/account/kernels.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
