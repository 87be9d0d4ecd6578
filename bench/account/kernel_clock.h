/* kernel_clock.h: how long a GPU takes for each entry of its kernel tables in a GPT's training step
 * in 16 bits: measured beside the predictions of bench/gpu_account.py.
 *
 * Each call of an entry is repeated, between two waits for the device, and counts with the mean: a
 * step's results are wrong afterwards (additions happen several times), its times are not. An entry
 * may launch several kernels.
 */
#ifndef BENCH_ACCOUNT_KERNEL_CLOCK_H
#define BENCH_ACCOUNT_KERNEL_CLOCK_H

#include "common/device/device.h"

typedef struct EntryTime {
    const char *entry; // as the account's list names the operation (account/recorder.c)
    size_t calls;
    double seconds; // of all calls
} EntryTime;

typedef struct KernelClock KernelClock;

// Makes the device time its kernels, each call `repeats` > 0 times. One clock at a time.
KernelClock *kernel_clock_open(Device *device, size_t repeats);
void kernel_clock_close(KernelClock *clock); // the device has its own kernels again; NULL is fine
// Returns the entries in the order of their first call; *count is their number.
const EntryTime *kernel_clock_times(const KernelClock *clock, size_t *count);

#endif
