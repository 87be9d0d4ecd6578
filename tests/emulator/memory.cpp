/* memory.cpp: device memory that only emulated work can access, pinned memory, and the messages
 * about wrong addresses.
 *
 * Each allocation has its own pages between guard pages without access, as close to the upper guard
 * as its alignment allows; the rest of its pages holds a pattern that is checked when it is freed.
 * Device memory is inaccessible (PROT_NONE) except while work is executed, and then only the memory
 * of that work's device and of its peers is accessible. It is filled with 0xff, which is NaN in
 * every float format, so that a read before a write yields NaN. Freed addresses are never reused: a
 * late access is reported with the name of the freed allocation.
 *
 * While one thread executes work, a wrong access by another thread goes unnoticed.
 */
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>

#include "emulator.h"

namespace emulator {

enum : size_t { PAGE = 4096, GUARD = 1 << 20, ALIGNMENT = 512 };
enum : unsigned char { UNWRITTEN = 0xff, CANARY = 0xa5 };

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static void protect(Allocation &allocation, bool open) {
    if (mprotect(allocation.inner, allocation.inner_bytes,
                 open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        fail("mprotect failed: %s", strerror(errno));
    allocation.open = open;
}

void memory_open(Runtime &r, int device, int other) {
    if (r.open_device == device && r.open_other == other) return;
    r.open_device = device;
    r.open_other = other;
    for (auto &entry : r.allocations) {
        Allocation &a = entry.second;
        if (a.device == HOST) continue;
        bool wanted = device != HOST && (a.device == device || a.device == other ||
                                         r.devices[device].peers[a.device]);
        if (wanted != a.open) protect(a, wanted);
    }
}

void memory_close(Runtime &r) {
    memory_open(r, HOST, HOST);
}

const Allocation *memory_find(const Allocations &allocations, const void *address) {
    auto after = allocations.upper_bound(static_cast<const char *>(address));
    if (after == allocations.begin()) return nullptr;
    const Allocation &a = std::prev(after)->second;
    return static_cast<const char *>(address) < a.outer + a.outer_bytes ? &a : nullptr;
}

const Allocation *memory_holding(const Runtime &r, const void *memory, size_t bytes) {
    const Allocation *a = memory_find(r.allocations, memory);
    const char *begin = static_cast<const char *>(memory);
    if (a == nullptr || begin < a->memory || begin > a->memory + a->bytes ||
        bytes > static_cast<size_t>(a->memory + a->bytes - begin))
        return nullptr;
    return a;
}

void memory_check(const Runtime &r, const char *what, const void *memory, size_t bytes) {
    const Allocation *a = memory_holding(r, memory, bytes);
    if (a == nullptr || a->device == HOST)
        fail("%s: %p, %zu bytes, is not in one piece of device memory", what, memory, bytes);
}

int memory_device(const void *memory, size_t bytes) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    const Allocation *a = memory_holding(r, memory, bytes);
    return a == nullptr ? HOST : a->device;
}

// ---- wrong addresses ---------------------------------------------------------------------------

static struct sigaction previous_handler; // of SIGSEGV; global, for the signal handler

// Prints a message about the address, restores the previous signal handler and returns: the access
// is repeated and ends the program as usual. The functions called here are not async-signal-safe,
// but the program ends anyway.
static void on_fault(int signal_number, siginfo_t *info, void *) {
    const Runtime &r = runtime();
    const Task *task = thread_state().executing;
    const char *address = static_cast<const char *>(info->si_addr);
    const char *who = task != nullptr ? task_name(*task) : "the host";
    const Allocation *a = memory_find(r.allocations, address);
    if (const Allocation *gone = memory_find(r.freed, address))
        fprintf(stderr, "cuda_emulator: %s touched memory that was freed (%zu bytes of %s)\n", who,
                gone->bytes, gone->device == HOST ? "pinned memory" : "device memory");
    else if (a != nullptr && (address < a->inner || address >= a->inner + a->inner_bytes))
        fprintf(stderr, "cuda_emulator: %s touched memory %td bytes %s an allocation of %zu\n", who,
                address < a->memory ? a->memory - address
                                    : address - a->memory - (ptrdiff_t)a->bytes,
                address < a->memory ? "before" : "past the end of", a->bytes);
    else if (a != nullptr && task == nullptr)
        fprintf(stderr, "cuda_emulator: the host touched device memory of GPU %d\n", a->device);
    else if (a != nullptr)
        fprintf(stderr,
                "cuda_emulator: %s, work of GPU %d, touched memory of GPU %d without peer access\n",
                who, task->device, a->device);
    else if (task != nullptr)
        fprintf(stderr, "cuda_emulator: %s touched an address that is no memory\n", who);
    sigaction(signal_number, &previous_handler, nullptr);
}

static void catch_faults() {
    struct sigaction action = {}, current = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, nullptr, &current);
    if (current.sa_sigaction != on_fault) sigaction(SIGSEGV, &action, &previous_handler);
}

// ---- allocation and release --------------------------------------------------------------------

static void fill_slack(const Allocation &a, int value) {
    char *end = a.memory + a.bytes;
    memset(a.inner, value, static_cast<size_t>(a.memory - a.inner));
    memset(end, value, static_cast<size_t>(a.inner + a.inner_bytes - end));
}

static bool slack_is(const char *begin, const char *end, unsigned char value) {
    for (; begin < end; begin++)
        if (static_cast<unsigned char>(*begin) != value) return false;
    return true;
}

void memory_check_canaries(const Allocation &a) {
    const char *end = a.memory + a.bytes;
    if (!slack_is(a.inner, a.memory, CANARY) || !slack_is(end, a.inner + a.inner_bytes, CANARY))
        fail("something wrote outside of an allocation of %zu bytes (%s)", a.bytes,
             a.device == HOST ? "pinned memory" : "device memory");
}

static cudaError_t allocate(Runtime &r, int device, void **memory, size_t bytes) {
    cudaError_t error = capture_forbids(r);
    *memory = nullptr;
    if (error != cudaSuccess || bytes == 0) return error;
    if (device != HOST && (bytes > r.settings.memory ||
                           r.devices[device].used + round_up(bytes, ALIGNMENT) > r.settings.memory))
        return cudaErrorMemoryAllocation;
    catch_faults();
    Allocation a = {};
    a.bytes = bytes;
    a.device = device;
    a.inner_bytes = round_up(bytes, PAGE);
    a.outer_bytes = a.inner_bytes + 2 * GUARD;
    void *pages =
        mmap(nullptr, a.outer_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return cudaErrorMemoryAllocation;
    a.outer = static_cast<char *>(pages);
    a.inner = a.outer + GUARD;
    a.memory = a.inner + a.inner_bytes - round_up(bytes, ALIGNMENT);
    protect(a, true);
    memset(a.memory, UNWRITTEN, bytes);
    fill_slack(a, CANARY);
    if (device != HOST) {
        protect(a, false);
        r.devices[device].used += round_up(bytes, ALIGNMENT);
        r.open_device = r.open_other = UNKNOWN; // makes the next memory_open set all permissions
    }
    r.allocations[a.outer] = a;
    *memory = a.memory;
    return cudaSuccess;
}

// Like the real function it waits until the device is idle, for pinned memory all devices.
static cudaError_t release(Runtime &r, Lock &lock, bool pinned, const char *function,
                           void *memory) {
    cudaError_t error = capture_forbids(r);
    if (memory == nullptr || error != cudaSuccess) return error;
    const Allocation *found = memory_find(r.allocations, memory);
    if (found == nullptr || found->memory != memory || (found->device == HOST) != pinned) {
        fprintf(stderr, "cuda_emulator: %s of %p, which %s\n", function, memory,
                memory_find(r.freed, memory) != nullptr ? "was freed already"
                                                        : "was never allocated");
        return cudaErrorInvalidValue;
    }
    const char *key = found->outer;
    for (int d = 0; d < r.settings.devices; d++)
        if (pinned || d == found->device) run_device(r, lock, d);
    auto entry = r.allocations.find(key);
    if (entry == r.allocations.end()) // freed by another thread while the lock was released
        return cudaErrorInvalidValue;
    Allocation a = entry->second;
    protect(a, true);
    memory_check_canaries(a);
    mmap(a.inner, a.inner_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
    if (!pinned) r.devices[a.device].used -= round_up(a.bytes, ALIGNMENT);
    r.freed[key] = a;
    r.allocations.erase(entry);
    return cudaSuccess;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    return call(
        [=](Runtime &r, Lock &) { return allocate(r, thread_state().device, memory, bytes); });
}

cudaError_t cudaFree(void *memory) {
    return call(
        [=](Runtime &r, Lock &lock) { return release(r, lock, false, "cudaFree", memory); });
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
    return call([=](Runtime &r, Lock &) { return allocate(r, HOST, memory, bytes); });
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory) {
    return call(
        [=](Runtime &r, Lock &lock) { return release(r, lock, true, "cudaFreeHost", memory); });
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return call([=](Runtime &r, Lock &) {
        *total_bytes = r.settings.memory;
        *free_bytes = r.settings.memory - r.devices[thread_state().device].used;
        return cudaSuccess;
    });
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                     const void *pointer) {
    return call([=](Runtime &r, Lock &) {
        const Allocation *a = memory_holding(r, pointer, 1);
        void *address = const_cast<void *>(pointer);
        if (a == nullptr)
            *attributes = {cudaMemoryTypeUnregistered, UNKNOWN, nullptr, address};
        else if (a->device == HOST)
            *attributes = {cudaMemoryTypeHost, thread_state().device, address, address};
        else
            *attributes = {cudaMemoryTypeDevice, a->device, address, nullptr};
        return cudaSuccess;
    });
}
