/* recorder.h: a device that computes nothing and lists the operations that a training step asks
 * for, with their shapes: the input of bench/gpu_account.py's prediction.
 *
 * The device is dry-cpu:0 with the kernel tables of a GPU backend: it stores tensors in 16 bits, so
 * the tape takes the path that it takes on a GPU. Every entry that a GPT's step calls counts the
 * launches of that entry's CUDA kernels (common/device/cuda), their floating-point operations by
 * unit, and their bytes of device memory. Any other entry ends the program, so that no operation of
 * a step is missing from the list.
 *
 * Launches are checked against the emulator's count of a real step (tests/programs/gpu_account.sh).
 */
#ifndef BENCH_ACCOUNT_RECORDER_H
#define BENCH_ACCOUNT_RECORDER_H

#include "common/device/device.h"

// Equal operations of a step. A product c[m,n] = a[m,k] b[k,n] has m, n and k; others have 0.
typedef struct Operation {
    const char *kernel; // the CUDA kernel's name, or that of the table's entry
    size_t times;       // in the list
    size_t launches;    // of each time
    size_t m, n, k;
    double tensor;     // floating-point operations on tensor cores, of each time
    double fp32, fp64; // instructions of a thread on these units (a multiply-add is one), as above
    double bytes;      // of device memory, read and written, of each time
} Operation;

typedef struct Recorder Recorder;

// Makes the device, which must be dry-cpu:0, list its operations. tensor_cores: of capability 8.0,
// for attention; products always take theirs. One recorder at a time.
Recorder *recorder_open(Device *device, bool tensor_cores);
void recorder_close(Recorder *recorder); // the device has its own kernels again; NULL is fine
void recorder_clear(Recorder *recorder); // forgets all operations so far
// Returns the operations, in the order of their first call; *count is their number.
const Operation *recorder_operations(const Recorder *recorder, size_t *count);

#endif
