/* device.h: a device is a memory and something that computes on it.
 *
 * "cpu:0", "cpu:1", ... are devices of one machine without a GPU: each has its own memory (what one
 * device allocated another never touches), its own worker thread, and the CPU's kernel table.
 * Nothing crosses from one device to another except by device_copy, which counts the bytes. So
 * every algorithm for many GPUs runs here as it is, and what it moves can be read off.
 * "ref:0" is the same with the plain-C reference kernels: slow, readable, and the tests' oracle.
 * "dry-cpu:0", "dry-cuda:0", ... only count what they are asked to hold.
 * "cuda:0", "cuda:1", ... are GPUs, with as many Devices as one likes on each ("cuda:0" twice: two
 * replicas on one card). The host cannot touch their memory (device_is_addressable).
 *
 * Work on a device runs in the order of the calls: kernels, copies, fills. On a GPU
 * the calls return at once, and the host waits where a number comes back: a copy to the host,
 * device_synchronize, readback_wait. A CPU's calls return when the work is done, and everything
 * about waiting is free. One thread at a time uses a Device.
 *
 * This file does not know what is computed: that is the kernel table (device/kernels.h). How each
 * kind of device does the rest is its backend.
 */
#ifndef COMMON_DEVICE_DEVICE_H
#define COMMON_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/device/kernels.h"

typedef struct Worker Worker;
typedef struct DeviceBackend DeviceBackend;
typedef struct Link Link;

typedef struct Device {
    char name[16]; // "cpu:1"
    int index;
    const Kernels *kernels; // to be called through device_kernels
    const DeviceBackend *backend;
    void *state;    // the backend's
    Worker *worker; // NULL until the first device_submit
    Link *link;     // to the other devices, emulated (--link); NULL: none
    int capability; // of a GPU, its compute capability, 10 major + minor; 0: no GPU
    bool tf32;      // products may round float32 factors to 10 bits (GPUs; PyTorch's allow_tf32)

    // What is allocated now and at most, in bytes, since device_reset_peak.
    size_t bytes, peak_bytes;
    // What device_copy brought in from elsewhere since the device was opened. copy_ns: the host's
    // time for it, which on a GPU is that of the call.
    uint64_t copied_bytes, copy_ns;
} Device;

// Opens "cpu:N", "ref:N" or "cuda:N" ("cpu" is "cpu:0"). Returns NULL with err filled: STATUS_USAGE
// for an unknown name, STATUS_SKIPPED for absent hardware.
Device *device_open(const char *name, Error *err);
void device_close(Device *device); // NULL is fine; all its memory must have been freed
// How many devices of a kind ("cpu", "cuda") this machine has; INT_MAX: as many as one likes. 0 if
// this build cannot use them, or there are none.
int device_available(const char *kind);
// As device_available. If the machine has such devices and none can be used, why says the reason.
int device_usable(const char *kind, Error *why);

// ---- what kind of device it is: three questions that happen to have one answer today ------------

// Does it compute on the host's own cores? Then it has no streams, graphs or TF32.
static inline bool device_is_cpu(const Device *device) {
    return device->kernels->is_cpu;
}

// Is what was asked of it done when the call returns? If not, times are those of asking, and
// numbers come back later.
static inline bool device_is_synchronous(const Device *device) {
    return device->kernels->is_synchronous;
}

// Can the host read and write its memory as its own, without device_copy?
static inline bool device_is_addressable(const Device *device) {
    return device->kernels->is_addressable;
}

// The device's kernels; the calling thread's current device is now this one. A table is to be used
// at once, before another device is asked for its own.
const Kernels *device_kernels(const Device *device);

// Device memory, aligned to MEMORY_ALIGNMENT, contents undefined. bytes may be 0. Never NULL: a
// device that is out of memory ends the program with a line that says how much was requested.
// Memory that is freed may be handed out again at once: the device works in order.
void *device_alloc(Device *device, size_t bytes);
void device_free(Device *device, void *memory, size_t bytes); // the same bytes; NULL is fine
void device_reset_peak(Device *device);
// Counts memory of another owner (a segment shared between ranks) as this device's.
void device_count(Device *device, size_t bytes);
void device_uncount(Device *device, size_t bytes);

// Copies between two devices, or within one. From or to the host: pass NULL as that device; then
// the host's memory may be used again when it returns. Between devices the copy comes after all
// that was asked of both, and before all that will be. Counted at the destination when the devices
// differ. Regions must not overlap.
void device_copy(Device *to, void *destination, Device *from, const void *source, size_t bytes);

// Waits until everything that was asked of the device is done.
void device_synchronize(Device *device);

// ---- without waiting ----------------------------------------------------------------------------

// Host memory that the device copies from and to on its own (pinned, on a GPU). Aligned as above.
void *device_host_alloc(Device *device, size_t bytes);
void device_host_free(Device *device, void *memory);

// A place in the device's order of work.
typedef struct DeviceEvent DeviceEvent;
DeviceEvent *device_event_create(Device *device);
void device_event_close(DeviceEvent *event);  // NULL is fine
void device_event_record(DeviceEvent *event); // here, now
void device_event_wait(DeviceEvent *event);   // the host waits for the last recorded; none: returns

// Copies from device_host_alloc's memory beside the work in order: what was asked of the device
// before may still be under way, what is asked of it later sees the copy. `free` marks the last
// time that the destination was used (NULL: never), `done` is recorded when the source may be
// changed.
void device_upload(Device *device, void *destination, const void *source, size_t bytes,
                   DeviceEvent *free, DeviceEvent *done);

// A few numbers from the device, looked at later.
typedef struct Readback Readback;
Readback *readback_create(Device *device, size_t bytes);
void readback_close(Readback *readback);
void readback_start(Readback *readback, const void *source); // [bytes], device memory
const void *readback_wait(Readback *readback);               // [bytes], until the next start

// ---- graphs: a step recorded once and replayed -------------------------------------------------

// Between begin and end, what is asked of the device is recorded and not done. It must not wait,
// take or give back memory, or involve another Device. If the device has no graphs (a CPU), `begin`
// returns -1 with err filled (STATUS_USAGE). `end` returns NULL with err filled if something in
// between could not be recorded.
typedef struct DeviceGraph DeviceGraph;
int device_graph_begin(Device *device, Error *err);
DeviceGraph *device_graph_end(Device *device, Error *err);
void device_graph_launch(Device *device, DeviceGraph *graph);
void device_graph_close(Device *device, DeviceGraph *graph); // NULL is fine

// ---- a thread of its own -------------------------------------------------------------------
// For what a device does beside the calling thread: DataParallel runs its replicas so.

// Runs function(argument) on the device's own thread, which is started at the first call and
// lives until device_close. One job at a time per device: submit, then wait.
void device_submit(Device *device, void (*function)(void *argument), void *argument);
// Keeps that thread on the share `place` of `places` of the cores that this process may use:
// threads that wait for each other are slow when the system puts them on one core.
void device_bind_cores(Device *device, int place, int places);
// Waits for the job. Returns 0, or -1 with err filled after `seconds` without an end.
int device_wait(Device *device, double seconds, Error *err);

#endif
