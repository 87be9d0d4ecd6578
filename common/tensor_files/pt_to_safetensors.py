#!/usr/bin/env python3
"""pt_to_safetensors.py: turns PyTorch's file of weights (torch.save) into safetensors, which this project reads.

    common/tensor_files/pt_to_safetensors.py model.pt model.safetensors [--key NAME]
    build/bin/train_single --load-init model.safetensors [--strip-prefix module.]

The .pt file holds a state_dict, or a dictionary in which --key names it (without --key, "state_dict" or "model"
is taken if it is there). Nothing in the file is executed (weights_only). Tensors become float32 or
int64, the types that are read here; their names stay. It needs torch, and nothing else.
"""
import argparse
import json
import struct
import sys

import torch


class Unusable(Exception):
    """What the file holds cannot be converted."""


def find_weights(content, key):
    if key:
        if not isinstance(content, dict) or key not in content:
            raise Unusable(f"the file has no {key}")
        content = content[key]
    else:
        for name in ("state_dict", "model"):
            if isinstance(content, dict) and isinstance(content.get(name), dict):
                content = content[name]
                break
    if not isinstance(content, dict):
        raise Unusable(f"the file holds no dictionary of tensors but a {type(content).__name__}: save model.state_dict()")
    tensors = {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if len(tensors) < len(content) or not tensors:
        others = ", ".join(sorted(str(name) for name in content if name not in tensors))
        raise Unusable(f"these are no tensors: {others}; --key names the dictionary of weights" if others else "there are no tensors in it")
    for name, tensor in tensors.items():
        if tensor.is_complex() or tensor.layout != torch.strided or tensor.is_quantized:
            raise Unusable(f"{name} is {tensor.dtype} ({tensor.layout}), which neither float32 nor int64 can hold")
    return tensors


def write(path, tensors):
    header, parts, offset = {}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].is_floating_point()):
        wanted, dtype = (torch.float32, "F32") if tensor.is_floating_point() else (torch.int64, "I64")
        data = tensor.detach().to("cpu", wanted).contiguous().numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FILE.pt")
    parser.add_argument("target", metavar="FILE.safetensors")
    parser.add_argument("--key", help="where in the file the weights are")
    arguments = parser.parse_args()
    try:
        tensors = find_weights(torch.load(arguments.source, map_location="cpu", weights_only=True), arguments.key)
    except (Unusable, OSError) as error:
        sys.exit(f"error: {arguments.source}: {error}")
    except Exception as error:  # many kinds, some without words
        cause = (str(error).splitlines() or [""])[0]
        sys.exit(f"error: {arguments.source}: torch.load does not read it: {type(error).__name__} {cause}")
    write(arguments.target, tensors)


if __name__ == "__main__":
    main()
