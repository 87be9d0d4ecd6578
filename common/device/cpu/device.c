/* device.c: devices made of the host's own memory and of whichever thread calls. Every call has
 * done its work when it returns, so there is nothing to wait for.
 */
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/memory.h"
#include "common/device/device_backend.h"

static int unlimited(Error *why) {
    (void)why;
    return INT_MAX;
}

static int open(Device *device, Error *err) {
    return device->backend->kernels->prepare(err);
}

static void nothing(Device *device) {
    (void)device;
}

static void enter(const Device *device) {
    (void)device; // the kernels take pointers and know nothing of devices
}

enum { HUGE_PAGE = 2 << 20, LARGE = 4 * HUGE_PAGE }; // bytes

// A step walks through all of an arena. Where that is large, it lies in huge pages if the system
// has some: with pages of 4 KiB the processor would look up addresses for some percent of its time.
// Smaller allocations have exactly the requested size: AddressSanitizer sees every overrun.
static void *alloc(Device *device, size_t bytes) {
    (void)device;
    bool large = bytes >= LARGE;
    size_t whole = large ? (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : bytes;
    void *memory = NULL;
    if (posix_memalign(&memory, large ? HUGE_PAGE : MEMORY_ALIGNMENT, whole) != 0) return NULL;
    if (large) madvise(memory, whole, MADV_HUGEPAGE); // a wish, no more
    return memory;
}

static void give_back(Device *device, void *memory, size_t bytes) {
    (void)device;
    (void)bytes;
    free(memory);
}

static void host_give_back(Device *device, void *memory) {
    (void)device;
    free(memory);
}

static void copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    (void)to;
    (void)from;
    memcpy(destination, source, bytes);
}

// ---- without waiting: at once -------------------------------------------------------------------

static void *event_create(Device *device) {
    return device;
}

static void event_nothing(Device *device, void *event) {
    (void)device;
    (void)event;
}

static void upload(Device *device, void *destination, const void *source, size_t bytes,
                   void *free_event, void *done_event) {
    (void)free_event;
    (void)done_event;
    copy(device, destination, NULL, source, bytes);
}

static void download(Device *device, void *destination, const void *source, size_t bytes,
                     void *done_event) {
    (void)done_event;
    copy(NULL, destination, device, source, bytes);
}

static int no_graph(Device *device, Error *err) {
    return error_set(err, STATUS_USAGE, "%s has no graphs: they are for cuda devices",
                     device->name);
}

// (Designators cannot stand in parentheses.) NOLINTBEGIN(bugprone-macro-parentheses)
#define HOST_DEVICE(kind, table)                                                                   \
    {                                                                                              \
        .name = kind, .kernels = table, .available = unlimited, .open = open, .close = nothing,    \
        .enter = enter, .alloc = alloc, .free = give_back, .host_alloc = alloc,                    \
        .host_free = host_give_back, .copy = copy, .synchronize = nothing,                         \
        .event_create = event_create, .event_close = event_nothing, .event_record = event_nothing, \
        .event_wait = event_nothing, .upload = upload, .download = download,                       \
        .graph_begin = no_graph                                                                    \
    }
// NOLINTEND(bugprone-macro-parentheses)

const DeviceBackend device_cpu = HOST_DEVICE("cpu", &kernels_cpu);
const DeviceBackend device_ref = HOST_DEVICE("ref", &kernels_ref);
