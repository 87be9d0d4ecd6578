#!/usr/bin/env python3
"""by_op.py BIN_DIR: bench_step --by-op prints each kernel's calls, bytes and operations in a step. They are computed again
from the layers of each model, and the bound and the shares from the printed rates and times."""
import subprocess
import sys

FLOAT = 4 # bytes
EXPONENTIAL = 32  # vector operations, each of which counts as two floating-point operations
CLASSES, CHARACTERS, SHAPES = 10, 76, 4


class Step:
    """The totals over a step's layers, by kernel."""

    def __init__(self):
        self.rows, self.parameters = {}, 0

    def add(self, kernel, floats, operations=0.0, times=1):
        calls, all_bytes, all_operations = self.rows.get(kernel, (0, 0, 0))
        self.rows[kernel] = (calls + times, all_bytes + times * FLOAT * floats, all_operations + times * operations)

    def conv(self, n, c, side, k, stride=1, kernel=3, first=False, added=0):
        """added: its input's gradient is accumulated into another layer's."""
        x, w, y = n * c * side ** 2, k * c * kernel ** 2, n * k * (side // stride) ** 2
        operations = 2 * y * c * kernel ** 2
        self.parameters += w
        self.add('conv2d', x + w + y, operations)
        self.add('conv2d_weight_gradient', x + w + y, operations)
        if not first:
            self.add('conv2d_input_gradient', x + w + y + added * x, operations)

    def norm(self, n, c, side, residual=False):
        """Includes a relu; after a residual the relu's gradient is a separate kernel."""
        x = n * c * side ** 2
        self.parameters += 2 * c
        self.add('batch_norm', (4 if residual else 3) * x)
        self.add('batch_norm_gradient', (5 if residual else 6) * x)
        if residual:
            self.add('activation_gradient', 3 * x)

    def max_pool(self, n, c, side, added=0):
        x, y = n * c * side ** 2, n * c * (side // 2) ** 2
        self.add('max_pool', x + 2 * y)
        self.add('max_pool_gradient', x + 2 * y + added * x)

    def linear(self, rows, inputs, outputs, gradient='matmul', times=1):
        floats, operations = rows * inputs + inputs * outputs + rows * outputs, 2 * rows * inputs * outputs
        for kernel in ('linear', 'linear_weight_gradient', gradient):
            masked = rows * inputs if kernel == 'linear_relu_gradient' else 0
            if kernel:
                self.add(kernel, floats + masked, operations, times)
        self.parameters += times * (inputs + 1) * outputs

    def loss(self, rows, classes):
        lanes = (classes + 15) // 16 * 16 # padded to whole vectors
        self.add('cross_entropy', 2 * rows * classes, 2 * (1 + 1 + EXPONENTIAL + 4 + 6) * rows * lanes)
        self.add('cross_entropy_gradient', 2 * rows * classes)


def mlp(width, layers, n):
    step = Step()
    for layer in range(layers):
        step.linear(n, width, width, gradient='linear_relu_gradient' if layer else None)
    step.linear(n, width, CLASSES, gradient='linear_relu_gradient')
    step.loss(n, CLASSES)
    step.add('sgd', 5 * step.parameters)
    return step.rows


def convnet(n):
    step = Step()
    for c, k, side in ((1, 16, 28), (16, 32, 14)):
        step.conv(n, c, side, k, first=c == 1)
        step.norm(n, k, side)
        step.max_pool(n, k, side)
    step.linear(n, 32 * 7 * 7, CLASSES)
    step.loss(n, CLASSES)
    step.add('sgd', 5 * step.parameters)
    return step.rows


def resnet20(n):
    step, c, side = Step(), 16, 32
    step.conv(n, 3, side, c, first=True)
    step.norm(n, c, side)
    for k, stride in ((16, 1), (16, 1), (16, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1)):
        step.conv(n, c, side, k, stride, added=1)
        if stride == 2:
            seen = n * c * (side // 2) ** 2
            step.add('shortcut', 3 * seen) # doubles the channels
            step.add('shortcut_gradient', seen + n * c * side ** 2)
        c, side = k, side // stride
        step.norm(n, c, side)
        step.conv(n, c, side, c)
        step.norm(n, c, side, residual=True)
    for kernel in ('avg_pool', 'avg_pool_gradient'):
        step.add(kernel, n * c * side ** 2 + n * c)
    step.linear(n, c, CLASSES)
    step.loss(n, CLASSES)
    step.add('sgd', 5 * step.parameters)
    return step.rows


def segnet(n):
    step, full, half, quarter = Step(), 64, 32, 16
    for c, k, side in ((3, 16, full), (16, 16, full), (16, 32, half), (32, 32, half), (32, 32, quarter),
                       (32, 32, quarter), (32, 16, half), (16, 16, full)):
        step.conv(n, c, side, k, first=c == 3)
        step.norm(n, k, side)
    for k, side in ((16, full), (32, half)): # the decoder has one for each, too
        step.max_pool(n, k, side, added=1)
    for c, side in ((32, half), (16, full)):
        step.add('upsample2x', 5 * n * c * (side // 2) ** 2)
        step.add('upsample2x_gradient', 5 * n * c * (side // 2) ** 2)
        step.add('add', 3 * n * c * side ** 2)
    step.conv(n, 16, full, SHAPES, kernel=1)
    step.parameters += SHAPES
    pixels, logits = n * full ** 2, n * SHAPES * full ** 2
    step.add('conv2d_bias_gradient', logits)
    step.add('pixel_cross_entropy', 2 * logits + 3 * pixels, 2 * (EXPONENTIAL + 4) * logits)
    step.add('hard_pixels', 3.25 * pixels)
    step.add('pixel_cross_entropy_gradient', 2 * logits + 2.25 * pixels)
    step.add('sgd', 5 * step.parameters)
    return step.rows


def gpt(layers, heads, c, context, n):
    step, rows, size = Step(), n * context, c // heads
    for inputs, outputs in ((c, 3 * c), (c, c), (c, 4 * c), (4 * c, c)):
        step.linear(rows, inputs, outputs, times=layers)
    step.linear(rows, c, CHARACTERS) # tied to the embedding, without bias
    x, hidden, pairs = rows * c, 4 * rows * c, n * heads * context * (context + 1) // 2
    saved = n * heads * context ** 2 / 2  # in 16 bits
    step.add('attention', 4 * x + saved, pairs * (2 * 2 * size + 2 * (EXPONENTIAL + 5)), layers)
    step.add('attention_gradient', 7 * x + saved, pairs * (4 * 2 * size + 2 * 5), layers)
    step.add('activation', 3 * hidden, 2 * (EXPONENTIAL + 16) * hidden, layers)
    step.add('activation_gradient', 3 * hidden, 0, layers)
    step.add('add', 3 * x, 0, 2 * layers)
    step.add('layer_norm', 2 * x, 0, 2 * layers + 1)
    step.add('layer_norm_gradient', 4 * x, 0, 2 * layers) # accumulated into the residual's
    step.add('layer_norm_gradient', 3 * x)
    step.add('embedding', 2 * x)
    step.add('embedding_gradient', x + 2 * CHARACTERS * c) # accumulated into the head's
    step.add('position_gradient', x)
    step.add('fill', 0)
    step.loss(rows, CHARACTERS)
    parameters = (CHARACTERS + context + 2) * c + layers * (12 * c * c + 13 * c)
    step.add('adam', 7 * parameters)
    return step.rows


def check(program, options, wanted, rounds):
    ran = subprocess.run([program, '--by-op', '--rounds', str(rounds), *options.split()], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    first, titles, *rows = [line.split() for line in ran.stdout.splitlines()]
    rates = {key: float(value) for key, value in (x.split('=') for x in first)}
    assert max(rates['sgemm_gflops'], rates['memory_gb_s']) < 1e5, rates # beyond any CPU: nothing was computed
    assert titles == 'kernel calls bytes operations ms share bound_ms by to_bound'.split(), titles
    *rows, rest = rows
    assert rest[:2] == ['(all', 'else)'], rest
    found = {row[0]: tuple(map(float, row[1:4])) for row in rows}
    # Printed values are rounded: a half may be printed as either neighbour.
    assert set(found) == set(wanted), set(found) ^ set(wanted)
    for kernel, numbers in wanted.items():
        assert all(abs(a - b) <= 0.5 for a, b in zip(found[kernel], numbers)), (options, kernel, found[kernel], numbers)
    check_times(rates, rows, list(map(float, rest[2:])), rounds)


def check_times(rates, rows, rest, rounds):
    step = rates['step_ms']
    unsure = 0.06 / min(rates['memory_gb_s'], rates['sgemm_gflops'])  # printed with one decimal
    times = [float(row[4]) for row in rows]
    assert times == sorted(times, reverse=True), times
    if rounds == 1: # medians of several rounds need not add up
        assert abs(sum(times) + rest[0] - step) < 0.001 * (len(rows) + 2), (sum(times), rest, step)
    for ms, share in [(float(row[4]), float(row[5])) for row in rows] + [tuple(rest)]:
        assert abs(ms - share * step) <= 0.0006 * (1 + step), (ms, share, step)
    for kernel, _, size, operations, ms, _, *bound in rows:
        memory, flops = float(size) / rates['memory_gb_s'] / 1e6, float(operations) / rates['sgemm_gflops'] / 1e6
        if not bound:
            assert memory == flops == 0, kernel
            continue
        largest, printed = max(memory, flops), float(bound[0])
        assert abs(printed - largest) <= 0.0006 + unsure * largest, (kernel, printed, largest)
        if abs(memory - flops) > 2 * unsure * largest:
            assert bound[1] == ('memory' if memory > flops else 'flops'), (kernel, bound)
        if printed > 0.05:  # both are rounded to microseconds
            assert abs(float(bound[2]) - float(ms) / printed) <= 0.006 + 0.0006 * (1 + float(bound[2])) / printed, (kernel, bound)


def main():
    program = sys.argv[1] + '/bench_step'
    for options, wanted, rounds in (
            ('--width 64 --layers 3 --batch 20', mlp(64, 3, 20), 1), ('--width 48', mlp(48, 2, 256), 3),
            ('--model convnet --batch 3', convnet(3), 2), ('--model convnet', convnet(64), 1), ('--model resnet20 --batch 2', resnet20(2), 1),
            ('--model segnet --batch 2', segnet(2), 1),
            ('--model gpt --layers 3 --heads 2 --embedding 48 --context 16 --batch 2', gpt(3, 2, 48, 16, 2), 1)):
        check(program, options, wanted, rounds)
    print('7 steps: calls, bytes and operations of each kernel')


main()
