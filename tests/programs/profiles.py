#!/usr/bin/env python3
"""profiles.py BIN_DIR: the numbers that bench_profile saves beside times are computed again from the network's layers, and the
numbers that it prints from the saved ones."""
import json
import re
import subprocess
import sys
import tempfile

FLOAT = 4  # bytes
BUNDLED = 4096  # DataParallel sends tensors of at most as many bytes as one message


def mlp(features, hidden, outputs):
    """(bytes, unit) of each gradient, in the order in which they are ready; a unit is a layer."""
    sizes = [features, *hidden, outputs]
    layers = list(enumerate(zip(sizes, sizes[1:]), 1))
    return [(FLOAT * count, unit) for unit, (n, m) in reversed(layers) for count in (m, n * m)]


def resnet20():
    """Units are blocks; the first convolution and the head belong to the root."""
    blocks, c = [], 16
    for unit, k in enumerate((16, 16, 16, 32, 32, 32, 64, 64, 64), 1):
        blocks.append([(count, unit) for count in (k, k, 9 * k * k, k, k, 9 * c * k)])
        c = k
    tensors = [(10, 0), (640, 0), *(x for block in reversed(blocks) for x in block), (16, 0), (16, 0), (9 * 3 * 16, 0)]
    return [(FLOAT * count, unit) for count, unit in tensors]


def printed(text, key):
    return float(re.search(rf'\b{key}=([0-9.]+)', text)[1])


def check(program, name, options, rows, sample, outputs, tensors):
    with tempfile.NamedTemporaryFile() as file:
        ran = subprocess.run([program, *options, '--rows', str(rows), '--save', file.name], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        saved, text = json.load(open(file.name)), ran.stdout
    assert (saved['name'], saved['rows']) == (name, [(rows + 1) // 2, rows]), saved
    assert (saved['sample_bytes'], saved['output_bytes']) == (FLOAT * sample, FLOAT * outputs), saved
    found = [(x['bytes'], x['unit']) for x in saved['tensors']]
    assert found == tensors, (found, tensors)
    large = sum(size > BUNDLED for size, _ in tensors)
    assert saved['messages'] == large + (large < len(tensors)), (saved['messages'], large)
    ready = [x['ready'] for x in saved['tensors']]
    assert 0 < ready[0] and ready == sorted(ready) and ready[-1] == 1, ready
    assert f'model="{name}" rows={rows} gradients={sum(x for x, _ in tensors)} bytes tensors={len(tensors)}' in text, text
    for part in ('forward', 'loss', 'backward'):
        fixed, per_row = saved[part + '_s']
        assert fixed >= 0 and per_row >= 0 and fixed + per_row > 0, saved
        assert abs(printed(text, part + '_ms') - 1e3 * (fixed + rows * per_row)) <= 0.00051, (part, saved, text)
    assert abs(printed(text, 'optimizer_ms') - 1e3 * saved['optimizer_s']) <= 0.00051, text
    assert f'first gradient ready at {100 * ready[0]:.0f} % of backward' in text, (text, ready[0])
    assert printed(text, 'wake_us') > 0, text
    return saved


def main():
    program = sys.argv[1] + '/bench_profile'
    wide = ['--hidden', '300,1024', '--features', '20', '--outputs', '7', '--rounds', '3']
    check(program, 'mlp 300,1024', wide, 9, 20, 7, mlp(20, (300, 1024), 7))
    large = ['--hidden', '1025', '--features', '2', '--outputs', '1025', '--rounds', '1']  # no tensor is bundled
    check(program, 'mlp 1025', large, 2, 2, 1025, mlp(2, (1025,), 1025))
    saved = check(program, 'resnet20', ['--model', 'resnet20', '--rounds', '2'], 5, 3 * 32 * 32, 10, resnet20())
    # Its backward takes about twice its forward, and both far longer than the loss.
    forward, loss, backward = (x[0] + 5 * x[1] for x in (saved['forward_s'], saved['loss_s'], saved['backward_s']))
    assert 10 * loss < forward < 4 * backward, saved
    print('3 profiles: tensors, units, messages, and the times that are printed')


main()
