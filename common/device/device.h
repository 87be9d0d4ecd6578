/* device.h: a device is a memory and something that computes on it.
 *
 * "cpu:0", "cpu:1", ... are devices of one machine without a GPU: each has its own memory (what one
 * device allocated another never touches), its own worker thread, and the CPU's kernel table.
 * Nothing crosses from one device to another except by device_copy, which counts the bytes. So
 * every algorithm for many GPUs runs here as it is, and what it moves can be read off.
 * "ref:0" is the same with the plain-C reference kernels: slow, readable, and the tests' oracle.
 *
 * This file does not know what is computed: that is the kernel table (device/kernels.h).
 */
#ifndef COMMON_DEVICE_DEVICE_H
#define COMMON_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/device/kernels.h"

typedef struct Worker Worker;

typedef struct Device {
    char name[16]; // "cpu:1"
    int index;
    const Kernels *kernels;
    Worker *worker; // NULL until the first device_submit

    // What is allocated now and at most, in bytes, since device_reset_peak.
    size_t bytes, peak_bytes;
    // What device_copy brought in from elsewhere since the device was opened.
    uint64_t copied_bytes, copy_ns;
} Device;

// Opens "cpu:N" or "ref:N" ("cpu" is "cpu:0"). Returns NULL with err filled: STATUS_USAGE for a
// name nobody knows, STATUS_SKIPPED for hardware that is not here.
Device *device_open(const char *name, Error *err);
void device_close(Device *device); // NULL is fine; all its memory must have been freed

// Device memory, aligned to MEMORY_ALIGNMENT, contents undefined. bytes may be 0. Never NULL: a
// device that is out of memory ends the program with a line that says how much was asked for.
// One thread at a time per device.
void *device_alloc(Device *device, size_t bytes);
void device_free(Device *device, void *memory, size_t bytes); // the same bytes; NULL is fine
void device_reset_peak(Device *device);
// Counts memory that somebody else owns (a segment shared between ranks) as this device's.
void device_count(Device *device, size_t bytes);
void device_uncount(Device *device, size_t bytes);

// Copies between two devices, or within one. From or to the host: pass NULL as that device.
// Counted at the destination when the devices differ. Regions must not overlap.
void device_copy(Device *to, void *destination, const Device *from, const void *source,
                 size_t bytes);

// Runs function(argument) on the device's own thread, which is started at the first call and
// lives until device_close. One job at a time per device: submit, then wait.
void device_submit(Device *device, void (*function)(void *argument), void *argument);
// Waits for the job. Returns 0, or -1 with err filled after `seconds` without an end.
int device_wait(Device *device, double seconds, Error *err);

#endif
