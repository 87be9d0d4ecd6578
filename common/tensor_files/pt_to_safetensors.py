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


def find_weights(content, key):
    if key:
        if not isinstance(content, dict) or key not in content:
            sys.exit(f"error: the file has no {key}")
        content = content[key]
    else:
        for name in ("state_dict", "model"):
            if isinstance(content, dict) and isinstance(content.get(name), dict):
                content = content[name]
                break
    if not isinstance(content, dict):
        sys.exit(f"error: the file holds no dictionary of tensors but a {type(content).__name__}: save model.state_dict()")
    tensors = {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if len(tensors) < len(content) or not tensors:
        others = ", ".join(sorted(str(name) for name in content if name not in tensors))
        sys.exit(f"error: these are no tensors: {others}; --key names the dictionary of weights" if others
                 else "error: there are no tensors in it")
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
        content = torch.load(arguments.source, map_location="cpu", weights_only=True)
    except Exception as error:
        sys.exit(f"error: {arguments.source}: {str(error).splitlines()[0]}")
    write(arguments.target, find_weights(content, arguments.key))


if __name__ == "__main__":
    main()
