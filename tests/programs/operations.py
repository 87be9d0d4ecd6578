#!/usr/bin/env python3
"""operations.py BIN_DIR: bench_operations lists the kernels of a GPT's step on a GPU, each with its launches, shape,
operations by unit and bytes. All numbers are computed again here from the network's sizes."""
import csv
import subprocess
import sys
from collections import defaultdict

HALF, FLOAT, TOKEN, DOUBLE = 2, 4, 8, 8  # bytes


class Step:
    def __init__(self):
        self.rows = defaultdict(int)

    def add(self, kernel, size, fp32=0, fp64=0, tensor=0, shape=(0, 0, 0), launches=1, times=1):
        self.rows[kernel, launches, *shape, tensor, fp32, fp64, size] += times

    def each(self, kernel, count, fp32, size, times=1):
        """A loop over count elements."""
        self.add(kernel, size * count, fp32 * count, times=times)

    def product(self, kernel, m, n, k, times, gelu=0, result=HALF):
        """gelu: its operations per element of the product; a further matrix of that size is read or stored."""
        size = HALF * (m * k + k * n) + (2 if gelu else 1) * result * m * n
        self.add(kernel, size, gelu * m * n, tensor=2 * m * n * k, shape=(m, n, k), times=times)

    def linear(self, rows, inputs, outputs, padding=0, times=1, before_gelu=False, after_gelu=False, fp16=False):
        wide = outputs + padding
        self.product('linear_gelu' if before_gelu else 'linear', rows, wide, inputs, times, 20 * before_gelu)
        rest = outputs % 8 if padding else 0
        for part in [] if fp16 else {outputs - rest, rest} - {0}:
            self.product('linear_weight_gradient', part, inputs, rows, times, result=FLOAT)
        if fp16:
            self.product('linear_weight_gradient', wide, inputs, rows, times)
            self.each('widen_linear', inputs * outputs, 1, HALF + FLOAT, times)
        kernel = 'linear_gelu_gradient' if after_gelu else 'linear_input_gradient'
        self.product(kernel, rows, inputs, wide, times, 30 * after_gelu)

    def layer_norms(self, rows, channels, layers):
        """The first adds no branch, and its gradient has none to return; the last one's gradient accumulates into none."""
        x, warps = rows * channels, 14 * 32 * rows
        parts = 2 * 2 * 256 * DOUBLE * channels
        self.add('layer_norm', (FLOAT + HALF) * x, 21 * x, warps)
        self.add('layer_norm', 2 * (FLOAT + HALF) * x, 22 * x, warps, times=2 * layers)
        self.add('layer_norm_gradient', 12 * x + parts, 41 * x, warps) # reads dy and x, writes dx, also to the branch
        self.add('layer_norm_gradient', 16 * x + parts, 41 * x, warps, times=2 * layers - 1) # also reads dx
        self.add('layer_norm_gradient', 14 * x + parts, 41 * x, warps)


def pairs(length, rows, columns):
    """Pairs of a query and a key in the tiles up to the diagonal."""
    return sum(rows * min(length, -(-(at + rows) // columns) * columns) for at in range(0, length, rows))


def attention(step, a, exact):
    size, all_heads, x = a['embedding'] // a['heads'], a['batch'] * a['heads'], a['batch'] * a['context'] * a['embedding']
    exact = exact or size % 8 != 0
    step.each('attention_means_kernel', x, 2, 2 * HALF, a['layers'])
    tiles = (32, 16) if size > 64 else (64, 32)
    # The gradient's blocks of keys and its blocks of queries each compute the softmax; four products and three.
    for name, tile, products, kinds, halves in (('', tiles[0], 2, 1, 5), ('gradient_', tiles[1], 4 + 3, 2, 2 * 4 + 3)):
        if exact:
            fp32 = all_heads * pairs(a['context'], tile, tile) * (products * size + kinds * 24)
            step.add(f'attention_{name}kernel', halves * HALF * x, fp32, times=a['layers'])
        else:
            tensor = all_heads * pairs(a['context'], 16, 32) * 2 * products * size
            step.add(f'attention_mma_{name}kernel', halves * HALF * x, tensor=tensor, times=a['layers'])


def loss(step, rows, classes, padded, fp16):
    if not fp16:
        step.each('cross_entropy_in_place_kernel', rows * padded, 33, 2 * HALF)
        return
    step.each('widen_rows', rows * classes, 1, HALF + FLOAT)
    step.each('cross_entropy', rows * classes, 29, 2 * FLOAT)
    step.each('count_correct', rows * classes, 3, FLOAT)
    step.each('cross_entropy_gradient', rows * classes, 8, 2 * FLOAT)
    step.each('narrow_rows', rows * padded, 1, FLOAT + HALF)


def operations(a, exact=False, fp16=False):
    step, rows, c, layers = Step(), a['batch'] * a['context'], a['embedding'], a['layers']
    padded = -(-a['vocabulary'] // 128) * 128
    for inputs, outputs in ((c, 3 * c), (c, c), (c, 4 * c), (4 * c, c)):
        step.linear(rows, inputs, outputs, 0, layers, outputs == 4 * c, inputs == 4 * c, fp16)
    step.linear(rows, c, a['vocabulary'], padded - a['vocabulary'], fp16=fp16)
    step.layer_norms(rows, c, layers)
    attention(step, a, exact)
    loss(step, rows, a['vocabulary'], padded, fp16)
    step.each('embedding', rows * c, 1, 3 * FLOAT)
    step.add('embedding_gradient', TOKEN * rows * rows * -(-c // 256) + 3 * FLOAT * rows * c)
    step.each('position_gradient', rows * c, 7, FLOAT)
    parameters = (a['vocabulary'] + a['context'] + 2) * c + layers * (12 * c * c + 13 * c)
    in_half = a['vocabulary'] * c + layers * (12 * c * c + 9 * c) # weights and biases of linear layers, rounded by the step
    size = 7 * FLOAT * parameters + HALF * in_half
    step.add('adam', size, 20 * parameters, launches=-(-(12 * layers + 4) // 64))
    return step.rows


def check(program, sizes, *flags):
    options = [x for key, value in sizes.items() for x in ('--' + key, str(value))]
    wanted = operations(sizes, '--exact-attention' in flags, '--fp16' in flags)
    text = subprocess.run([program, *options, *flags], capture_output=True, text=True, check=True).stdout
    titles, *rows = csv.reader(text.splitlines())
    assert titles == 'kernel,times,launches,m,n,k,tensor,fp32,fp64,bytes'.split(','), titles
    found = {(row[0], *map(int, row[2:])): int(row[1]) for row in rows}
    assert len(found) == len(rows)
    assert found == wanted, (options, flags, sorted(set(found.items()) ^ set(wanted.items())))


def main():
    program = sys.argv[1] + '/bench_operations'
    small = dict(layers=3, heads=2, embedding=48, context=40, vocabulary=50, batch=2)
    check(program, small)
    check(program, small, '--exact-attention')
    check(program, small, '--fp16')
    check(program, dict(layers=6, heads=3, embedding=288, context=72, vocabulary=256, batch=1), '--exact-attention')
    for size in (64, 65): # the largest head of large tiles, and the next one
        check(program, dict(layers=1, heads=1, embedding=size, context=200, vocabulary=50, batch=1), '--exact-attention')
    check(program, dict(layers=1, heads=2, embedding=12, context=72, vocabulary=129, batch=3)) # no tiles: heads of 6 channels
    print('7 steps: every kernel, shape, operation and byte')


main()
