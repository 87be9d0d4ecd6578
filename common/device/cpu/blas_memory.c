/* blas_memory.c: see blas_memory.h. */
#include "common/device/cpu/blas_memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// A buffer of OpenBLAS 0.3 on x86-64 and arm64 (its BUFFER_SIZE; older ones have smaller buffers),
// and a thread's stack.
enum { BUFFER = 128 << 20, STACK = 8 << 20 }; // bytes

// Weak symbols: OpenBLAS's headers do not declare these functions, and only its pthread build
// defines the last one.
void *blas_memory_alloc(int position) __attribute__((weak));
void blas_memory_free(void *buffer) __attribute__((weak));
int blas_thread_shutdown_(void) __attribute__((weak));

typedef struct Limit {
    size_t bytes;
    const char *of, *option; // "address space", ulimit's
} Limit;

static bool read_limit(int resource, size_t *bytes) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
    *bytes = (size_t)limit.rlim_cur;
    return true;
}

// Sets *limit to the smaller of the limits of address space and of data; a buffer counts in both.
// Returns false if there is neither.
static bool limited(Limit *limit) {
    size_t space = SIZE_MAX, data = SIZE_MAX;
    bool found = read_limit(RLIMIT_AS, &space);
    found = read_limit(RLIMIT_DATA, &data) || found;
    *limit =
        data < space ? (Limit){data, "data segment", "-d"} : (Limit){space, "address space", "-v"};
    return found;
}

// The bytes of address space that this process has mapped; 0 if /proc does not tell.
static size_t mapped(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%zu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

int blas_memory_check(size_t buffers, Error *err) {
    Limit limit;
    const size_t bytes = buffers * ((size_t)BUFFER + STACK);
    if (bytes == 0 || !limited(&limit)) return 0;
    // Mapped for a moment and never touched; writable, because only that counts as data.
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) return munmap(room, bytes);
    return error_set(err, STATUS_USAGE,
                     "the %s is limited to %zu KiB (ulimit %s), and OpenBLAS needs %zu KiB for "
                     "%zu thread%s -- raise the limit to more than %zu, or lift it: "
                     "ulimit %s unlimited",
                     limit.of, limit.bytes >> 10, limit.option, bytes >> 10, buffers,
                     buffers == 1 ? "" : "s", (mapped() + bytes) >> 10, limit.option);
}

enum { MOST = 64 }; // buffers that OpenBLAS can have at least, however it was built

int blas_memory_reserve(Error *err) {
    Limit limit;
    void *held[MOST];
    int count = 0;
    if (!limited(&limit)) return 0;
    // OpenBLAS's own threads are not needed, and may not have mapped their buffers yet: they are
    // joined, and their buffers are free for other threads.
    if (blas_thread_shutdown_) blas_thread_shutdown_();
    if (blas_memory_check(1, err) != 0) return -1;
    if (!blas_memory_alloc || !blas_memory_free) return 0;
    // Unused buffers come first; the buffer after those is a new one.
    for (size_t before = mapped(); count < MOST && mapped() < before + STACK;)
        held[count++] = blas_memory_alloc(0);
    while (count > 0) blas_memory_free(held[--count]);
    return 0;
}
