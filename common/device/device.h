/* device.h: a device is a memory and something that computes on it.
 *
 * "cpu:0", "cpu:1", ... are devices of one machine without a GPU: each has its own memory, which no
 * other device accesses, its own worker thread, and the CPU's kernel table. Data moves between
 * devices by device_copy only, which counts the bytes. So every algorithm for many GPUs runs here
 * unchanged, and its traffic is measured.
 * "ref:0" is the same with the plain-C reference kernels: slow, readable, and the tests' oracle.
 * "dry-cpu:0", "dry-cuda:0", ... only count their allocations.
 * "cuda:0", "cuda:1", ... are GPUs, with any number of Devices on each ("cuda:0" twice: two
 * replicas on one card). The host cannot access their memory (device_is_addressable).
 *
 * Work on a device runs in the order of the calls: kernels, copies, fills. On a GPU the calls are
 * asynchronous; a copy to the host, device_synchronize and readback_wait wait for completion. On a
 * CPU every call is complete when it returns, and waiting is free. One thread at a time uses a
 * Device.
 *
 * The kernel table (device/kernels.h) computes; a kind's backend does the rest.
 */
#ifndef COMMON_DEVICE_DEVICE_H
#define COMMON_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/device/kernels.h"

typedef struct DeviceWorker DeviceWorker;
typedef struct DeviceBackend DeviceBackend;
typedef struct DeviceLink DeviceLink;

typedef struct Device {
    char name[16]; // "cpu:1"
    int index;
    const Kernels *kernels; // to be called through device_kernels
    const DeviceBackend *backend;
    void *state;          // the backend's
    DeviceWorker *worker; // NULL until the first device_submit
    DeviceLink *link;     // to the other devices, emulated (--link); NULL: none
    int capability;       // of a GPU, its compute capability, 10 major + minor; 0: no GPU
    bool tf32; // products may round float32 factors to 10 bits (GPUs; PyTorch's allow_tf32)

    // Allocated bytes, and their maximum since device_reset_peak. limit_bytes: more of them are an
    // error, which ends the program; 0: no limit.
    size_t bytes, peak_bytes, limit_bytes;
    // Bytes that device_copy has copied from other devices, and the host's time in these calls,
    // which on a GPU return before the copy has completed.
    uint64_t copied_bytes, copy_ns;
    struct DeviceEvent *added[2]; // device_accumulate: the last addition from either part; or NULL
} Device;

// Opens "cpu:N", "ref:N" or "cuda:N" ("cpu" is "cpu:0"). Returns NULL with err filled: STATUS_USAGE
// for an unknown name, STATUS_SKIPPED for absent hardware.
Device *device_open(const char *name, Error *err);
void device_close(Device *device); // NULL is fine; all its memory must have been freed
// The number of devices of a kind ("cpu", "cuda") on this machine; INT_MAX: no limit. 0 if there
// are none or this build cannot use them.
int device_available(const char *kind);
// Like device_available. If the machine has such devices and none is usable, writes the cause to
// why.
int device_usable(const char *kind, Error *why);

// ---- properties of a kind of device: on a CPU all are true, on a GPU all are false --------------

// Computes on the host's cores: no streams, graphs or TF32.
static inline bool device_is_cpu(const Device *device) {
    return device->kernels->is_cpu;
}

// Every call is complete when it returns. Otherwise times are those of enqueueing, and results are
// read back later.
static inline bool device_is_synchronous(const Device *device) {
    return device->kernels->is_synchronous;
}

// The host reads and writes its memory directly, without device_copy.
static inline bool device_is_addressable(const Device *device) {
    return device->kernels->is_addressable;
}

bool device_is_dry(const Device *device); // computes and stores nothing ("dry-cpu")

// Returns the device's kernels, and makes it the calling thread's current device: call the table
// before device_kernels of another device.
const Kernels *device_kernels(const Device *device);

// Device memory, aligned to MEMORY_ALIGNMENT, contents undefined. bytes may be 0. Never NULL: a
// device that is out of memory ends the program with a message that has the requested bytes. Freed
// memory may be reused at once, because the device works in order.
void *device_alloc(Device *device, size_t bytes);
void device_free(Device *device, void *memory, size_t bytes); // the same bytes; NULL is fine
void device_reset_peak(Device *device);
// Counts memory of another owner (a segment shared between ranks) as this device's.
void device_count(Device *device, size_t bytes);
void device_uncount(Device *device, size_t bytes);

// Copies between two devices, or within one. NULL is the host; then host memory may be reused when
// the call returns. A copy between devices runs after all earlier work of both and before all later
// work. Counted at the destination if the devices differ. Regions must not overlap.
void device_copy(Device *to, void *destination, Device *from, const void *source, size_t bytes);

// Copies bytes of one device to several others: on GPUs at the same time. Each copy is ordered as
// device_copy's.
typedef struct DeviceCopy {
    Device *to; // not `from`
    void *destination;
} DeviceCopy;
void device_copy_to_all(const DeviceCopy *copies, size_t count, Device *from, const void *source,
                        size_t bytes);

// sum[count] += term[count], for each term in the order of the list; sum is memory of `to`, term of
// `from`. Terms of other devices are copied in parts to staging[staging_count], memory of `to`. On
// GPUs it has room for two parts, so that one is copied while the other is added.
typedef struct DeviceTerm {
    float *sum;
    Device *from;
    const float *term;
    size_t count;
} DeviceTerm;
void device_accumulate(Device *to, const DeviceTerm *terms, size_t count, float *staging,
                       size_t staging_count);

// Waits until all work of the device has completed.
void device_synchronize(Device *device);

// ---- asynchronous copies ------------------------------------------------------------------------

// Host memory for asynchronous copies (pinned, on a GPU). Aligned as above.
void *device_host_alloc(Device *device, size_t bytes);
void device_host_free(Device *device, void *memory);

// A point in the device's order of work.
typedef struct DeviceEvent DeviceEvent;
DeviceEvent *device_event_create(Device *device);
void device_event_close(DeviceEvent *event);  // NULL is fine
void device_event_record(DeviceEvent *event); // after all work so far
void device_event_wait(DeviceEvent *event);   // blocks until the last record; none: returns

// Copies from device_host_alloc's memory, concurrently with earlier work and before later work.
// `free`: recorded after the destination's last use (NULL: none). `done` is recorded when the
// source may be changed.
void device_upload(Device *device, void *destination, const void *source, size_t bytes,
                   DeviceEvent *free, DeviceEvent *done);

// An asynchronous copy of a few bytes to the host.
typedef struct Readback Readback;
Readback *readback_create(Device *device, size_t bytes);
void readback_close(Readback *readback);
void readback_start(Readback *readback, const void *source); // [bytes], device memory
const void *readback_wait(Readback *readback);               // [bytes], until the next start

// ---- graphs: a step recorded once and replayed -------------------------------------------------

// Between begin and end, work is recorded instead of run. It must not wait, allocate, free, or
// involve another Device. If the device has no graphs (a CPU), `begin` returns -1 with err filled
// (STATUS_USAGE). `end` returns NULL with err filled if a call could not be recorded.
typedef struct DeviceGraph DeviceGraph;
int device_graph_begin(Device *device, Error *err);
DeviceGraph *device_graph_end(Device *device, Error *err);
void device_graph_launch(Device *device, DeviceGraph *graph);
void device_graph_close(Device *device, DeviceGraph *graph); // NULL is fine

// ---- a thread of its own -------------------------------------------------------------------
// DataParallel runs its replicas concurrently on these threads.

// Runs function(argument) on the device's own thread, which the first call starts and device_close
// ends. One job at a time per device: submit, then wait.
void device_submit(Device *device, void (*function)(void *argument), void *argument);
// Binds that thread to share `place` of `places` of this process's cores: threads that wait for
// each other are slow on one core.
void device_bind_cores(Device *device, int place, int places);
// Waits for the job. Returns 0, or -1 with err filled if it has not ended after `seconds`.
int device_wait(Device *device, double seconds, Error *err);

#endif
