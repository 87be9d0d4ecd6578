/* device.c: devices of host memory, whose kernels run in the calling thread. Every call is complete
 * when it returns.
 */
#include <string.h>
#include <sys/mman.h>

#include "common/base/memory.h"
#include "common/device/device_backend.h"

static int open(Device *device, Error *err) {
    return device->kernels->prepare(err);
}

static void enter(const Device *device) {
    (void)device; // kernels take pointers only
}

enum { HUGE_PAGE = 2 << 20 }; // bytes

// A large allocation is a multiple of this: its last bytes lie in a huge page, too. All others, and
// large ones under AddressSanitizer, have exactly the requested size: it sees every overrun.
#ifdef __SANITIZE_ADDRESS__
enum { LARGE_UNIT = 1 };
#else
enum { LARGE_UNIT = HUGE_PAGE };
#endif

// A step walks through all of an arena, and through all weights, gradients and their states. An
// allocation of a huge page or more lies in huge pages if the system has some: with pages of 4 KiB
// the processor would look up addresses for up to a tenth of its time.
static void *alloc(Device *device, size_t bytes) {
    (void)device;
    const bool large = bytes >= HUGE_PAGE;
    size_t whole = large ? (bytes + LARGE_UNIT - 1) / LARGE_UNIT * LARGE_UNIT : bytes;
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

static void copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    (void)to;
    (void)from;
    memcpy(destination, source, bytes);
}

// (Designators cannot stand in parentheses.) NOLINTBEGIN(bugprone-macro-parentheses)
#define HOST_DEVICE(kind, table)                                                      \
    {                                                                                 \
        .name = kind, .kernels = table, .open = open, .enter = enter, .alloc = alloc, \
        .free = give_back, .host_alloc = alloc, .copy = copy                          \
    }
// NOLINTEND(bugprone-macro-parentheses)

const DeviceBackend device_cpu = HOST_DEVICE("cpu", &kernels_cpu);
const DeviceBackend device_ref = HOST_DEVICE("ref", &kernels_ref);
