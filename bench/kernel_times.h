/* kernel_times.h: the time that each of a CPU device's kernels takes in a training step, beside its
 * bound: the time that its bytes need through memory, or its floating-point operations at sgemm's
 * rate, whichever is longer.
 *
 * Bytes are those that must be moved if no cache holds a tensor from one kernel to the next: each
 * operand read once (twice where a statistic of all of it is needed before), each output written
 * once. An operation whose tensors stay in a cache may be faster than its bound.
 *
 * Exponentials count as the vector operations that they are made of (kernel_times.c).
 */
#ifndef BENCH_KERNEL_TIMES_H
#define BENCH_KERNEL_TIMES_H

#include "common/device/device.h"

typedef struct KernelTimes KernelTimes;

// Makes the device, a CPU, time its kernels, in up to `rounds` rounds. One at a time.
KernelTimes *kernel_times_open(Device *device, size_t rounds);
void kernel_times_close(KernelTimes *times); // the device has its own kernels again; NULL is fine
void kernel_times_clear(KernelTimes *times); // forgets all calls so far
// Ends a round, in which one step of step_seconds was taken, and measures the current rates
// of memory and sgemm.
void kernel_times_round(KernelTimes *times, double step_seconds);
// Prints the medians over the rounds, a row for each kernel, the slowest first.
void kernel_times_print(KernelTimes *times);

#endif
