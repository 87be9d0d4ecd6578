/* device.c: opens devices, and counts their allocated and copied bytes. Allocation and copying are
 * the backend's (cpu/device.c, cuda/device.c); a device's thread is in worker.c.
 */
#include "common/device/device.h"

#include <limits.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/object.h"
#include "common/device/device_backend.h"
#include "common/device/link.h"
#include "common/device/worker.h"

// "cpu:3" -> "cpu", 3; "cpu" -> "cpu", 0. Returns -1 if the name has another form.
static int parse_name(const char *name, char *kind, size_t capacity, int *index) {
    size_t length = strcspn(name, ":");
    uint64_t number = 0;
    const char *rest = name + length + (name[length] == ':');
    if (length == 0 || length >= capacity) return -1;
    if (name[length] && (!format_read_number(&rest, 999, &number) || *rest)) return -1;
    snprintf(kind, length + 1, "%s", name);
    *index = (int)number;
    return 0;
}

Device *device_open(const char *name, Error *err) {
    char kind[12];
    int index;
    if (parse_name(name, kind, sizeof kind, &index) != 0)
        return error_null(err, STATUS_USAGE, "device %s: expected a name like cpu:0",
                          format_quote(name).text);
    const DeviceBackend *backend = backend_find(kind, err);
    if (!backend) {
        error_prefix(err, "device %s", name);
        return NULL;
    }
    Device *device = object_open("device", sizeof *device);
    snprintf(device->name, sizeof device->name, "%s:%d", kind, index);
    device->index = index;
    device->kernels = backend->kernels;
    device->backend = backend;
    if (!backend->open || backend->open(device, err) == 0) return device;
    object_close(device);
    return NULL;
}

void device_close(Device *device) {
    if (!device) return;
    object_check_open(device, "device_close");
    worker_close(device);
    CHECK(device->bytes == 0, "%s closes with %zu bytes still allocated", device->name,
          device->bytes);
    for (int i = 0; i < 2; i++) device_event_close(device->added[i]);
    if (device->backend->close) device->backend->close(device);
    link_close(device->link);
    object_close(device);
}

int device_available(const char *kind) {
    return device_usable(kind, NULL);
}

int device_usable(const char *kind, Error *why) {
    Error err = {0};
    const DeviceBackend *backend = backend_find(kind, &err);
    if (backend) return backend->available ? backend->available(why) : INT_MAX;
    if (err.status == STATUS_FAILED) // of this build, but unusable on this machine
        fprintf(stderr, "device %s: %s\n", kind, err.message);
    return 0;
}

bool device_is_dry(const Device *device) {
    return strncmp(device->name, "dry-", strlen("dry-")) == 0;
}

const Kernels *device_kernels(const Device *device) {
    device->backend->enter(device);
    return device->kernels;
}

// ---- memory -------------------------------------------------------------------------------------

static _Noreturn void end_without_memory(const Device *device, size_t bytes) {
    Error err = {0};
    char limit[80] = "";
    if (device->limit_bytes)
        snprintf(limit, sizeof limit, " of the %zu that --memory-limit allows",
                 device->limit_bytes);
    error_set(&err, STATUS_FAILED, "%s is out of memory: asked for %zu bytes, %zu in use%s",
              device->name, bytes, device->bytes, limit);
    error_exit(&err);
}

static void check_limit(const Device *device, size_t bytes) {
    if (device->limit_bytes && device->bytes + bytes > device->limit_bytes)
        end_without_memory(device, bytes);
}

void device_count(Device *device, size_t bytes) {
    check_limit(device, bytes);
    device->bytes += bytes;
    if (device->bytes > device->peak_bytes) device->peak_bytes = device->bytes;
}

void device_uncount(Device *device, size_t bytes) {
    CHECK(bytes <= device->bytes, "%s gives back %zu bytes of %zu", device->name, bytes,
          device->bytes);
    device->bytes -= bytes;
}

void device_reset_peak(Device *device) {
    device->peak_bytes = device->bytes;
}

static void *or_exit(const Device *device, void *memory, size_t bytes) {
    if (!memory) end_without_memory(device, bytes);
    return memory;
}

void *device_alloc(Device *device, size_t bytes) {
    check_limit(device, bytes);
    void *memory = or_exit(device, device->backend->alloc(device, bytes ? bytes : 1), bytes);
    device_count(device, bytes);
    return memory;
}

void device_free(Device *device, void *memory, size_t bytes) {
    if (!memory) return;
    device->backend->free(device, memory, bytes);
    device_uncount(device, bytes);
}

void *device_host_alloc(Device *device, size_t bytes) {
    if (!device->backend->host_alloc) return memory_zalloc(bytes);
    return or_exit(device, device->backend->host_alloc(device, bytes ? bytes : 1), bytes);
}

void device_host_free(Device *device, void *memory) {
    if (device->backend->host_free && memory)
        device->backend->host_free(device, memory);
    else
        free(memory);
}

// ---- copies -------------------------------------------------------------------------------------

// Copies between devices of two kinds through host memory.
static void copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    if (!to && !from) {
        memcpy(destination, source, bytes);
    } else if (!to || !from || to->backend == from->backend) {
        (to ? to : from)->backend->copy(to, destination, from, source, bytes);
    } else {
        void *host = memory_zalloc(bytes);
        from->backend->copy(NULL, host, from, source, bytes);
        to->backend->copy(to, destination, NULL, host, bytes);
        free(host);
    }
}

// Counts a copy between two devices that began at start_ns; waits for their emulated links.
static void count_copy(Device *to, const Device *from, size_t bytes, uint64_t start_ns) {
    if (to->link && from->link)
        link_sleep_until(link_reserve(from->link, to->link, bytes, start_ns));
    to->copy_ns += clock_ns() - start_ns;
    to->copied_bytes += bytes;
}

void device_copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    if (bytes == 0) return;
    bool counted = to && from && to != from;
    uint64_t start = counted ? clock_ns() : 0;
    copy(to, destination, from, source, bytes);
    if (counted) count_copy(to, from, bytes, start);
}

void device_copy_to_all(const DeviceCopy *copies, size_t count, Device *from, const void *source,
                        size_t bytes) {
    if (bytes == 0) return;
    if (!from->backend->copy_to_all) {
        for (size_t i = 0; i < count; i++)
            device_copy(copies[i].to, copies[i].destination, from, source, bytes);
        return;
    }
    uint64_t start = clock_ns();
    from->backend->copy_to_all(copies, count, from, source, bytes);
    for (size_t i = 0; i < count; i++) count_copy(copies[i].to, from, bytes, start);
}

void device_emulate_link(Device *device, LinkSpeed speed) {
    CHECK(device_is_cpu(device), "%s has a link of its own", device->name);
    link_close(device->link);
    device->link = link_create(speed);
}

void device_synchronize(Device *device) {
    if (device->backend->synchronize) device->backend->synchronize(device);
}

// ---- events, asynchronous copies ----------------------------------------------------------------

struct DeviceEvent {
    Device *device;
    void *event; // the backend's; NULL: the device is synchronous
};

DeviceEvent *device_event_create(Device *device) {
    DeviceEvent *event = memory_zalloc(sizeof *event);
    event->device = device;
    if (device->backend->event_create) event->event = device->backend->event_create(device);
    return event;
}

void device_event_close(DeviceEvent *event) {
    if (event && event->event) event->device->backend->event_close(event->device, event->event);
    free(event);
}

void device_event_record(DeviceEvent *event) {
    if (event->event) event->device->backend->event_record(event->device, event->event);
}

void device_event_wait(DeviceEvent *event) {
    if (event->event) event->device->backend->event_wait(event->device, event->event);
}

void device_upload(Device *device, void *destination, const void *source, size_t bytes,
                   DeviceEvent *free, DeviceEvent *done) {
    if (bytes == 0) return;
    if (device->backend->upload)
        device->backend->upload(device, destination, source, bytes, free ? free->event : NULL,
                                done ? done->event : NULL);
    else
        device->backend->copy(device, destination, NULL, source, bytes);
}

// ---- sums of several devices' memory ------------------------------------------------------------

// Staging memory in one part, or in two that are used in turns.
typedef struct Parts {
    float *staging;
    size_t size; // of a part, in floats
    int count, turn;
} Parts;

static Parts parts_of(Device *to, float *staging, size_t staging_count) {
    enum { LINE = MEMORY_ALIGNMENT / sizeof(float) };
    if (!to->backend->copy_ahead || staging_count < (size_t)2 * LINE)
        return (Parts){staging, staging_count, .count = 1};
    for (int i = 0; i < 2; i++) { // a part is free when earlier work has used the staging memory
        if (!to->added[i]) to->added[i] = device_event_create(to);
        device_event_record(to->added[i]);
    }
    return (Parts){staging, staging_count / 2 / LINE * LINE, .count = 2};
}

static void add_term(Device *to, const DeviceTerm *term, Parts *parts) {
    for (size_t at = 0, now; at < term->count; at += now) {
        float *part = parts->staging + (size_t)parts->turn * parts->size;
        now = term->count - at < parts->size ? term->count - at : parts->size;
        size_t bytes = now * sizeof *part;
        if (parts->count == 1) {
            device_copy(to, part, term->from, term->term + at, bytes);
        } else {
            uint64_t start = clock_ns();
            to->backend->copy_ahead(to, part, term->from, term->term + at, bytes,
                                    to->added[parts->turn]->event);
            count_copy(to, term->from, bytes, start);
        }
        device_kernels(to)->elementwise->accumulate(term->sum + at, part, now);
        if (parts->count == 2) device_event_record(to->added[parts->turn]);
        parts->turn = (parts->turn + 1) % parts->count;
    }
}

void device_accumulate(Device *to, const DeviceTerm *terms, size_t count, float *staging,
                       size_t staging_count) {
    Parts parts = parts_of(to, staging, staging_count);
    for (const DeviceTerm *t = terms; t < terms + count; t++) {
        if (t->from == to)
            device_kernels(to)->elementwise->accumulate(t->sum, t->term, t->count);
        else
            add_term(to, t, &parts);
    }
}

struct Readback {
    Device *device;
    void *host; // [bytes]
    size_t bytes;
    DeviceEvent *done;
};

Readback *readback_create(Device *device, size_t bytes) {
    Readback *readback = memory_zalloc(sizeof *readback);
    *readback =
        (Readback){device, device_host_alloc(device, bytes), bytes, device_event_create(device)};
    return readback;
}

void readback_close(Readback *readback) {
    if (!readback) return;
    device_event_wait(readback->done);
    device_event_close(readback->done);
    device_host_free(readback->device, readback->host);
    free(readback);
}

void readback_start(Readback *readback, const void *source) {
    const DeviceBackend *backend = readback->device->backend;
    if (backend->download)
        backend->download(readback->device, readback->host, source, readback->bytes,
                          readback->done->event);
    else
        backend->copy(NULL, readback->host, readback->device, source, readback->bytes);
}

const void *readback_wait(Readback *readback) {
    device_event_wait(readback->done);
    return readback->host;
}

// ---- graphs -------------------------------------------------------------------------------------

int device_graph_begin(Device *device, Error *err) {
    if (device->backend->graph_begin) return device->backend->graph_begin(device, err);
    return error_set(err, STATUS_USAGE, "%s has no graphs: only cuda devices record them",
                     device->name);
}

DeviceGraph *device_graph_end(Device *device, Error *err) {
    return device->backend->graph_end(device, err);
}

void device_graph_launch(Device *device, DeviceGraph *graph) {
    device->backend->graph_launch(device, graph);
}

void device_graph_close(Device *device, DeviceGraph *graph) {
    if (graph) device->backend->graph_close(device, graph);
}
