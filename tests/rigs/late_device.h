/* late_device.h: an asynchronous device in host memory that executes nothing before a wait.
 *
 *     kernels, copies to the   queued in order; executed up to an event when the event is waited
 *     host, late_work          for, or completely by a synchronize
 *     copies that may          executed at once when the event that they depend on allows
 *     overtake work            (LATE_EAGER), or in the queue (LATE_LAZY); results must not differ
 *
 * So a result that is read without a wait is missing, memory that is reused before its event is
 * overwritten, and a source that changes before its copy completes is copied with the change. Both
 * modes are extremes that a GPU's streams allow.
 */
#ifndef TESTS_RIGS_LATE_DEVICE_H
#define TESTS_RIGS_LATE_DEVICE_H

#include "common/base/memory.h"
#include "common/base/object.h"
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

typedef enum LateCopies { LATE_EAGER, LATE_LAZY } LateCopies;

typedef struct LateWork {
    void (*function)(void *argument); // NULL: this work is a copy
    void *argument;
    void *destination;
    const void *source;
    size_t count; // bytes of a copy, terms of a sum
} LateWork;

enum { LATE_MOST = 4096 };

typedef struct LateDevice {
    DeviceBackend backend; // first field, so that a Device's backend points to its LateDevice
    Kernels kernels;
    ElementwiseKernels elementwise;
    LateCopies copies;
    LateWork queue[LATE_MOST];
    size_t queued, done;
    int events, host_memories, synchronized; // open events, live host allocations, synchronizes
} LateDevice;

static const Device *late_current; // the device of the last device_kernels

static inline LateDevice *late_of(const Device *device) {
    return (LateDevice *)device->backend;
}

static inline void late_run(LateDevice *late, size_t until) {
    for (; late->done < until; late->done++) {
        const LateWork *work = &late->queue[late->done];
        if (work->function)
            work->function(work->argument);
        else if (work->argument) // accumulates terms
            for (size_t i = 0; i < work->count; i++)
                ((float *)work->destination)[i] += ((const float *)work->source)[i];
        else
            memcpy(work->destination, work->source, work->count);
    }
}

static inline void late_queue(LateDevice *late, LateWork work) {
    assert_true(late->queued < LATE_MOST);
    late->queue[late->queued++] = work;
}

// Enqueues function(argument) after all work so far.
static inline void late_work(Device *device, void (*function)(void *argument), void *argument) {
    late_queue(late_of(device), (LateWork){.function = function, .argument = argument});
}

// ---- the backend --------------------------------------------------------------------------------

static inline void late_enter(const Device *device) {
    late_current = device;
}

static inline void late_accumulate(float *y, const float *x, size_t count) {
    late_queue(late_of(late_current), (LateWork){NULL, y, y, x, count});
}

static inline void *late_alloc(Device *device, size_t bytes) {
    (void)device;
    assert_true(bytes > 0);
    return memory_zalloc(bytes);
}

static inline void late_free(Device *device, void *memory, size_t bytes) {
    (void)bytes;
    late_work(device, free, memory); // after the work that uses it
}

static inline void *late_host_alloc(Device *device, size_t bytes) {
    late_of(device)->host_memories++;
    return late_alloc(device, bytes);
}

// Queued work must not use memory that is freed.
static inline void late_host_free(Device *device, void *memory) {
    LateDevice *late = late_of(device);
    assert_non_null(memory);
    for (size_t i = late->done; i < late->queued; i++)
        assert_true(late->queue[i].destination != memory && late->queue[i].source != memory);
    late->host_memories--;
    free(memory);
}

static inline void late_copy(Device *to, void *destination, Device *from, const void *source,
                             size_t bytes) {
    assert_true(bytes > 0);
    if (to) late_run(late_of(to), late_of(to)->queued);
    if (from) late_run(late_of(from), late_of(from)->queued);
    memcpy(destination, source, bytes);
}

static inline void late_synchronize(Device *device) {
    late_of(device)->synchronized++;
    late_run(late_of(device), late_of(device)->queued);
}

static inline void *late_event_create(Device *device) {
    late_of(device)->events++;
    return memory_zalloc(sizeof(size_t)); // length of the queue at the record
}

static inline void late_event_close(Device *device, void *event) {
    late_of(device)->events--;
    free(event);
}

static inline void late_event_record(Device *device, void *event) {
    *(size_t *)event = late_of(device)->queued;
}

static inline void late_event_wait(Device *device, void *event) {
    late_run(late_of(device), *(size_t *)event);
}

static inline void late_overtake(Device *device, void *destination, const void *source,
                                 size_t bytes, void *free_event) {
    LateDevice *late = late_of(device);
    if (late->copies == LATE_LAZY) {
        late_queue(late, (LateWork){NULL, NULL, destination, source, bytes});
        return;
    }
    if (free_event) late_event_wait(device, free_event);
    memcpy(destination, source, bytes);
}

static inline void late_copy_ahead(Device *to, void *destination, Device *from, const void *source,
                                   size_t bytes, void *free_event) {
    assert_true(bytes > 0 && to != from);
    late_run(late_of(from), late_of(from)->queued);
    late_overtake(to, destination, source, bytes, free_event);
}

static inline void late_upload(Device *device, void *destination, const void *source, size_t bytes,
                               void *free_event, void *done_event) {
    assert_true(bytes > 0);
    late_overtake(device, destination, source, bytes, free_event);
    if (done_event && late_of(device)->copies == LATE_LAZY) late_event_record(device, done_event);
}

static inline void late_download(Device *device, void *destination, const void *source,
                                 size_t bytes, void *done_event) {
    late_queue(late_of(device), (LateWork){NULL, NULL, destination, source, bytes});
    late_event_record(device, done_event);
}

static inline void late_close(Device *device) {
    LateDevice *late = late_of(device);
    late_run(late, late->queued);
    assert_int_equal(late->events, 0);
    assert_int_equal(late->host_memories, 0);
    free(late);
}

// Opens the device. Its device_close asserts that no event or host allocation is left.
static inline Device *late_open(LateCopies copies) {
    LateDevice *late = memory_zalloc(sizeof *late);
    late->copies = copies;
    late->elementwise.accumulate = late_accumulate;
    late->kernels = (Kernels){.name = "late", .elementwise = &late->elementwise};
    late->backend = (DeviceBackend){.name = "late",
                                    .kernels = &late->kernels,
                                    .close = late_close,
                                    .enter = late_enter,
                                    .alloc = late_alloc,
                                    .free = late_free,
                                    .host_alloc = late_host_alloc,
                                    .host_free = late_host_free,
                                    .copy = late_copy,
                                    .synchronize = late_synchronize,
                                    .event_create = late_event_create,
                                    .event_close = late_event_close,
                                    .event_record = late_event_record,
                                    .event_wait = late_event_wait,
                                    .copy_ahead = late_copy_ahead,
                                    .upload = late_upload,
                                    .download = late_download};
    Device *device = object_open("device", sizeof *device);
    snprintf(device->name, sizeof device->name, "late:0");
    device->backend = &late->backend;
    device->kernels = &late->kernels;
    return device;
}

#endif
