/* device_backend.h: a kind of device as a table of functions for device.c, and the list of kinds
 * (backends.c, the only file that depends on the kinds of this build).
 */
#ifndef COMMON_DEVICE_DEVICE_BACKEND_H
#define COMMON_DEVICE_DEVICE_BACKEND_H

#include "common/device/device.h"

// A function is NULL where its comment names a default.
struct DeviceBackend {
    const char *name; // "cuda"
    const Kernels *kernels;
    // Devices of this kind; INT_MAX: no limit (the default). 0 with why (may be NULL) filled: there
    // are some, and none can be used.
    int (*available)(Error *why);
    // Fills device->state; may give it kernels of its own. Returns 0, or -1 with err filled.
    // Default: state stays NULL.
    int (*open)(Device *device, Error *err);
    void (*close)(Device *device);                // default: no effect
    void (*enter)(const Device *device);          // sets the calling thread's current device
    void *(*alloc)(Device *device, size_t bytes); // bytes > 0; NULL: out of memory
    void (*free)(Device *device, void *memory, size_t bytes);
    void *(*host_alloc)(Device *device, size_t bytes); // as alloc; default: memory_zalloc
    void (*host_free)(Device *device, void *memory);   // default: free
    // One of the devices may be NULL, the host; if none is, both are of this kind. bytes > 0.
    void (*copy)(Device *to, void *destination, Device *from, const void *source, size_t bytes);
    // device_copy_to_all. Default: `copy` to one after another.
    void (*copy_to_all)(const DeviceCopy *copies, size_t count, Device *from, const void *source,
                        size_t bytes);

    // NULL, as are all functions below: each call is complete when it returns. Then device.c's
    // events are complete at once, `copy` uploads and downloads, and the device has no graphs.
    void (*synchronize)(Device *device);
    void *(*event_create)(Device *device);
    void (*event_close)(Device *device, void *event);
    void (*event_record)(Device *device, void *event);
    void (*event_wait)(Device *device, void *event); // an event never recorded: returns at once
    // Like copy between two devices, but concurrent with work of `to` after its event `free`.
    void (*copy_ahead)(Device *to, void *destination, Device *from, const void *source,
                       size_t bytes, void *free_event);
    // The events may be NULL.
    void (*upload)(Device *device, void *destination, const void *source, size_t bytes,
                   void *free_event, void *done_event);
    // Copies to device_host_alloc's memory, in order, then records `done`.
    void (*download)(Device *device, void *destination, const void *source, size_t bytes,
                     void *done_event);

    int (*graph_begin)(Device *device, Error *err);
    void *(*graph_end)(Device *device, Error *err);
    void (*graph_launch)(Device *device, void *graph);
    void (*graph_close)(Device *device, void *graph);
};

extern const Kernels kernels_cpu, kernels_ref;
extern const DeviceBackend device_cpu, device_ref, device_dry_cpu, device_dry_cuda;
// In libddpc_cuda.so alone.
extern const Kernels kernels_cuda;
extern const DeviceBackend device_cuda;
// The same, loaded; for builds with CUDA. NULL with err filled: STATUS_SKIPPED if there is no GPU.
const DeviceBackend *device_cuda_load(Error *err);

// Finds the backend of a kind. NULL with err filled: STATUS_USAGE for an unknown kind,
// STATUS_SKIPPED if this build or this machine lacks it, STATUS_FAILED if it cannot be loaded.
const DeviceBackend *backend_find(const char *kind, Error *err);

#endif
