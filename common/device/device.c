/* device.c: opening devices, their memory, and copies between them. The worker thread is worker.c.
 */
#include "common/device/device.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/device/worker.h"

// "cpu:3" -> "cpu", 3. Returns -1 if the name has another shape.
static int parse_name(const char *name, char *backend, size_t capacity, int *index) {
    size_t length = strcspn(name, ":");
    if (length == 0 || length >= capacity) return -1;
    memcpy(backend, name, length);
    backend[length] = '\0';
    *index = 0;
    if (name[length] == '\0') return 0;

    char *end;
    long value = strtol(name + length + 1, &end, 10);
    if (end == name + length + 1 || *end != '\0' || value < 0 || value > 999) return -1;
    *index = (int)value;
    return 0;
}

Device *device_open(const char *name, Error *err) {
    char backend[8];
    int index;
    if (parse_name(name, backend, sizeof backend, &index) != 0) {
        error_set(err, STATUS_USAGE, "device %s: expected a name like cpu:0", name);
        return NULL;
    }
    const Kernels *kernels = kernels_find(backend);
    if (!kernels) {
        bool known = strcmp(backend, "cuda") == 0;
        error_set(err, known ? STATUS_SKIPPED : STATUS_USAGE,
                  "device %s: this build has no backend \"%s\"", name, backend);
        return NULL;
    }
    if (kernels->prepare(err) != 0) return NULL;

    Device *device = memory_zalloc(sizeof *device);
    snprintf(device->name, sizeof device->name, "%s:%d", backend, index);
    device->index = index;
    device->kernels = kernels;
    return device;
}

void device_close(Device *device) {
    if (!device) return;
    worker_close(device->worker);
    CHECK(device->bytes == 0, "%s closes with %zu bytes still allocated", device->name,
          device->bytes);
    free(device);
}

void device_count(Device *device, size_t bytes) {
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

static size_t rounded(size_t bytes) {
    if (bytes == 0) bytes = 1;
    return (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
}

void *device_alloc(Device *device, size_t bytes) {
    void *memory = aligned_alloc(MEMORY_ALIGNMENT, rounded(bytes));
    if (!memory) {
        Error err = {0};
        error_set(&err, STATUS_FAILED, "%s is out of memory: asked for %zu bytes, %zu in use",
                  device->name, bytes, device->bytes);
        error_exit(&err);
    }
    device_count(device, bytes);
    return memory;
}

void device_free(Device *device, void *memory, size_t bytes) {
    if (!memory) return;
    free(memory);
    device_uncount(device, bytes);
}

void device_copy(Device *to, void *destination, const Device *from, const void *source,
                 size_t bytes) {
    if (bytes == 0) return;
    if (!to || !from || to == from) { // the host's memory and a CPU device's are one
        memcpy(destination, source, bytes);
        return;
    }
    uint64_t start = clock_ns();
    memcpy(destination, source, bytes);
    to->copy_ns += clock_ns() - start;
    to->copied_bytes += bytes;
}

void device_submit(Device *device, void (*function)(void *argument), void *argument) {
    if (!device->worker) device->worker = worker_create(device->name);
    worker_submit(device->worker, function, argument);
}

int device_wait(Device *device, double seconds, Error *err) {
    CHECK(device->worker, "%s: device_wait before device_submit", device->name);
    if (worker_wait(device->worker, seconds) == 0) return 0;
    return error_set(err, STATUS_FAILED, "%s did not finish its job within %.0f s", device->name,
                     seconds);
}
