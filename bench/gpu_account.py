#!/usr/bin/env python3
"""Predicts the time of a training step on a GPU by counting operations and bytes; needs no GPU.

    bench/gpu_account.py BIN_DIR [--card h100|h200|a100|t4|rtx3060] [--batch N]   GPT-2 124M in bf16, from its own step
    bench/gpu_account.py --list FILE [--card ...]                            another program's step: bench/account/*.csv
    bench/gpu_account.py BIN_DIR --measure DEVICE [--card ...]               with this GPU's measured times

BIN_DIR/bench_operations runs a step on a device that computes nothing, and lists each kernel with its launches, operations by
unit and bytes. A kernel's time is

    max(bytes / bandwidth, tensor + fp32 + fp64 + shared loads, each over its unit's rate) + a constant of a launch

and a step's time is the larger of the kernels' sum and the host's time for the launches. A product's tiles fill the processors in
whole waves. Shared loads, registers and shared memory are counted in compiled code (account/kernels.csv, written by
account/sass.py). The rates are in account/cards.csv. Columns: milliseconds of a step, and the unit that limits the kernel.

--measure runs BIN_DIR/bench_kernels. A row has all kernels of one entry of the kernel tables, which are timed together; the
card is by the device's name, else the first that has its capability (h100 if none has).
"""

import argparse
import ast
import csv
import math
import operator
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "account"
NUMBERS = ("times", "launches", "m", "n", "k", "tensor", "fp32", "fp64", "bytes")
TILES = ((128, 256), (256, 128), (128, 128), (64, 128), (128, 64))  # of a product, as cuBLAS has them
SMALL_TILE = {(128, 256): 1, (256, 128): 1, (128, 128): 0.9, (64, 128): 0.75, (128, 64): 0.75}  # of the rate: less reuse
PRODUCT = 2 * 16 * 8 * 16  # floating-point operations of mma.m16n8k16
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
ARCHITECTURES = dict(h100="90", h200="90", a100="80", t4="75", rtx3060="86")


# Kernels that are launched by the entry of another kernel, or have another name than their entry.
ENTRIES = dict(widen_linear="linear_weight_gradient", cross_entropy_in_place_kernel="half_cross_entropy",
               attention_kernel="attention", attention_mma_kernel="attention", attention_means_kernel="attention_gradient",
               attention_gradient_kernel="attention_gradient", attention_mma_gradient_kernel="attention_gradient")
QUICK = "--layers 1 --heads 2 --embedding 128 --context 32 --vocabulary 100".split()

# ---- reading --------------------------------------------------------------------------------------------

def rows_of(text):
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def card_named(name):
    """A card's constants by name."""
    return {row["constant"]: float(row[name]) for row in rows_of((HERE / "cards.csv").read_text())}


def evaluate(text, names):
    """The value of an expression of numbers, names, + - * / and parentheses."""
    def value(node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return names[node.id]
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    return float(value(ast.parse(text, mode="eval").body))


def sizes_of(vocabulary=50257, batch=8, context=1024):
    """The names that a list's expressions use, for GPT-2 124M."""
    channels, layers, heads = 768, 12, 12
    parameters = vocabulary * channels + context * channels + layers * (12 * channels + 13) * channels + 2 * channels
    return dict(R=batch * context, C=channels, V=vocabulary, P=parameters, A=batch * heads * context * (context + 128) / 2)


def operations_of(text, names):
    return [dict(row, **{key: evaluate(row[key], names) for key in NUMBERS}) for row in rows_of(text)]


def stated(text, key, otherwise):
    """The first number of a line "# key: number ..." of a list."""
    for line in text.splitlines():
        if line.startswith(f"# {key}: "):
            return float(line.split()[2])
    return otherwise


def compiled(card):
    """Registers, shared memory and instructions of kernels, for this card."""
    rows = rows_of((HERE / "kernels.csv").read_text())
    return {row["kernel"]: row for row in rows if row["architecture"] == ARCHITECTURES[card]}


# ---- the time of a kernel --------------------------------------------------------------------------------

def product_seconds(m, n, k, card):
    """Seconds of a product with the best of TILES, in whole waves of tiles over the processors."""
    rate = card["tensor"] * 1e12 * card["tensor_fp32_sum"] * card["tensor_reached"] / card["processors"]
    rate *= card["unaligned"] if any(size % 8 for size in (m, n, k)) else 1
    def seconds(tile):
        tiles = math.ceil(m / tile[0]) * math.ceil(n / tile[1])
        splits = max(1, min(8, int(card["processors"] // tiles)))  # of k, if there are too few tiles
        waves = math.ceil(tiles * splits / card["processors"])
        return waves * 2 * tile[0] * tile[1] * k / splits / (rate * SMALL_TILE[tile])
    return min(map(seconds, TILES))


def occupancy(kernel, card):
    """The kernel's resident warps per processor, by its registers and shared memory."""
    threads = int(kernel["threads"])
    registers = math.ceil(int(kernel["registers"]) / 8) * 8 * threads
    blocks = min(card["registers"] // registers, card["threads"] // threads,
                 card["shared_bytes"] // (int(kernel["shared"]) + 1024))
    return blocks * threads / 32


def at_occupancy(units, kernel, card):
    """The units' seconds, longer if there are too few resident warps to hide latencies."""
    full = min(1, occupancy(kernel, card) / card["warps"])
    return {name: seconds / full for name, seconds in units.items()}


def unit_seconds(row, card, kernel):
    """Seconds of each unit, by its name."""
    clocks = card["processors"] * card["clock"] * 1e9
    tensor = card["tensor"] * 1e12 * card["tensor_fp32_sum"] * card["mma_sync"]
    if kernel and float(kernel["hmma"]) > 0:
        products = row["tensor"] / PRODUCT  # instructions of a warp
        each = {key: float(kernel[key]) / float(kernel["hmma"]) for key in ("instructions", "shared_words")}
        units = dict(tensor=row["tensor"] / tensor, issue=products * each["instructions"] / (card["issue"] * clocks),
                     shared=products * each["shared_words"] * 32 / (card["shared"] * clocks))
        return at_occupancy(units, kernel, card)
    units = dict(tensor=row["tensor"] / tensor, fp32=row["fp32"] / (card["fp32"] * clocks),
                 fp64=row["fp64"] / (card["fp64"] * clocks))
    if kernel:
        words = row["fp32"] * float(kernel["shared_words"]) / float(kernel["ffma"])
        units["shared"] = words / (card["shared"] * clocks)
        return at_occupancy(units, kernel, card)
    return units


def kernel_seconds(row, card, kernel):
    """(seconds of one call, the unit that limits it)."""
    memory = row["bytes"] / (card["memory"] * 1e9 * card["memory_reached"])
    if row["m"]:
        units = dict(tensor=product_seconds(row["m"], row["n"], row["k"], card),
                     fp32=row["fp32"] / (card["fp32"] * card["processors"] * card["clock"] * 1e9))
    else:
        units = unit_seconds(row, card, kernel)
    work, launch = max(memory, sum(units.values())), row["launches"] * card["launch"] * 1e-6
    limit = "launch" if launch > work else "memory" if work == memory else max(units, key=units.get)
    return work + launch, limit


def account(operations, card_name, host_us=None):
    """Rows (kernel, launches, milliseconds, limit), the sum of milliseconds, and the host's."""
    card, kernels = card_named(card_name), compiled(card_name)
    table = {}
    for row in operations:
        seconds, limit = kernel_seconds(row, card, kernels.get(row["kernel"]))
        entry = table.setdefault(row["kernel"], [0, 0, 0, {}])
        entry[0] += row["times"] * row["launches"]
        entry[1] += row["times"] * seconds * 1e3
        entry[2] += row["times"] * row["bytes"] / 1e9
        entry[3][limit] = entry[3].get(limit, 0) + row["times"] * seconds
    launches = sum(entry[0] for entry in table.values())
    host = launches * (card["host"] if host_us is None else host_us) / 1e3
    return table, sum(entry[1] for entry in table.values()), host


# ---- the program -----------------------------------------------------------------------------------------

def show(table, device, host):
    print("| kernel | launches | GB | ms | limit |\n|---|---:|---:|---:|---|")
    for name, (launches, milliseconds, gigabytes, limits) in sorted(table.items(), key=lambda item: -item[1][1]):
        print(f"| {name} | {launches:.0f} | {gigabytes:.2f} | {milliseconds:.2f} | {max(limits, key=limits.get)} |")
    launches, gigabytes = (sum(entry[i] for entry in table.values()) for i in (0, 2))
    print(f"| all | {launches:.0f} | {gigabytes:.2f} | {device:.2f} | host {host:.2f} |")
    print(f"step_ms={max(device, host):.2f} launches={launches:.0f}")


def show_measured(table, times):
    """The predicted and the measured times of each entry. Returns whether every kernel has been measured."""
    entries = {}
    for kernel, (launches, milliseconds, _, _) in table.items():
        entry = entries.setdefault(ENTRIES.get(kernel, kernel), [[], 0, 0])
        entry[0].append(kernel)
        entry[1] += launches
        entry[2] += milliseconds
    print("| kernels | launches | predicted ms | measured ms | measured / predicted |\n|---|---:|---:|---:|---:|")
    for name, (kernels, launches, predicted) in sorted(entries.items(), key=lambda item: -item[1][2]):
        measured = times.get(name)
        figures = "- | -" if measured is None else f"{measured:.3f} | {measured / predicted:.2f}"
        print(f"| {' + '.join(kernels)} | {launches:.0f} | {predicted:.3f} | {figures} |")
    for name in sorted(times.keys() - entries.keys()):
        print(f"| {name} | - | - | {times[name]:.3f} | - |")
    predicted, measured = sum(entry[2] for entry in entries.values()), sum(times.values())
    print(f"| all | {sum(entry[1] for entry in entries.values()):.0f} | {predicted:.3f} | {measured:.3f} |"
          f" {measured / predicted:.2f} |")
    return entries.keys() <= times.keys()


def measured_times(command):
    """Milliseconds by entry, the device's description and its capability."""
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    device = next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("# device: ")), "")
    return ({row["entry"]: float(row["seconds"]) * 1e3 for row in rows_of(text)}, device,
            f"{stated(text, 'capability', 0):.0f}")


def card_of(device, capability):
    """The card whose name is in the device's description, else the first of this capability, else None."""
    named = [name for name in ARCHITECTURES if name in device.partition(",")[0].lower().replace(" ", "")]
    return next(iter(named + [name for name, of in ARCHITECTURES.items() if of == capability]), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?", help="the folder of bench_operations")
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("--card", choices=ARCHITECTURES, help="default: h100, or the card of --measure")
    parser.add_argument("--measure", metavar="DEVICE", help="cuda")
    parser.add_argument("--quick", action="store_true", help="a small GPT, whose figures mean nothing: tries the command")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--exact-attention", action="store_true", help="on FP32 units, as on cards below capability 8.0")
    options = parser.parse_args()
    if bool(options.bin) == bool(options.list) or (options.list and options.measure):
        parser.error("give BIN_DIR, or --list FILE")
    host, card, times = None, options.card or "h100", None
    sizes = ["--batch", str(options.batch), *(QUICK if options.quick else ())]
    if options.measure:
        times, device, capability = measured_times([f"{options.bin}/bench_kernels", "--device", options.measure, *sizes])
        card = options.card or card_of(device, capability) or card
        print(f"{card}: {device}, capability {capability}")
    if options.list:
        text = options.list.read_text()
        host = stated(text, "host", None)
    else:
        command = [f"{options.bin}/bench_operations", *sizes]
        if options.exact_attention or card == "t4":
            command.append("--exact-attention")
        if card == "t4":
            command.append("--fp16")
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    table, device, host = account(operations_of(text, sizes_of(batch=options.batch)), card, host)
    if times is not None:
        return 0 if show_measured(table, times) else 1
    show(table, device, host)
    return 0


if __name__ == "__main__":
    sys.exit(main())
