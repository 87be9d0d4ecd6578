/* races.cpp: see races.h. All state is one Watch: the emulator's lock is held while a kernel runs.
 *
 * Each access has a moment: a number for the block, the thread, and how many barriers, fences and
 * __syncwarps the thread has passed. Whether two accesses are ordered follows from their moments
 * and, between blocks, from the log of an atomic's word: which blocks have released their accesses
 * there.
 */
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>

#include <cuda_runtime.h>

#include "emulator.h"
#include "fiber.h"
#include "races.h"
#include "shadow.h"

namespace emulator {

enum : unsigned { WARP_LANES = 32, BLOCK_THREADS = 1024 };
enum : size_t { PAGES_KEPT = 2048 }; // of Shadow: 160 MB

struct Moment {
    uint32_t block, thread, barriers, fences, syncs;
};

// The accesses that an atomic publishes: its thread's, before the last of `fences`, and its
// block's, before barrier number `barriers`.
struct Release {
    size_t index;
    uint32_t thread, fences, barriers;
};

struct Log { // of a word that atomics change
    std::unordered_map<uint32_t, std::vector<Release>> of_block;
    size_t count = 0;
};

struct Acquire { // an atomic that has read a log
    const Log *log;
    size_t count; // number of the log's releases that it read
    uint32_t thread;
    enum { READ, FENCED, BLOCK } state; // valid for: nothing yet; the thread; its block
};

struct Clock { // of a thread
    uint32_t moment, moment_barriers, fences, fence_barriers, syncs;
};

struct Access {
    enum Kind { READ, WRITE, ATOMIC_CHANGE } kind;
    uintptr_t byte;
    const void *at; // address of the code
};

struct Watch {
    uint32_t block = 0, barriers = 0, thread = 0;
    uintptr_t stack = 0;
    Clock clocks[BLOCK_THREADS];
    std::vector<Acquire> acquires; // of the block
    std::unordered_map<uintptr_t, Log> logs;
    std::vector<Moment> moments; // of the kernel, from number `first` on
    uint32_t first = 1;
    std::vector<std::pair<uintptr_t, uintptr_t>> shared; // [begin, end), ascending
    Shadow shadow;
};

static Watch &state() {
    static Watch *watch = new Watch;
    return *watch;
}

// The state while a kernel runs. Meanwhile other threads may run host code of .cu files; on_access
// recognizes it by its stack.
static Watch *watching;

// ---- order of accesses -------------------------------------------------------------------------

static uint32_t moment_now(Watch &w) {
    Clock &clock = w.clocks[w.thread];
    if (clock.moment == 0 || clock.moment_barriers != w.barriers) {
        clock.moment = w.first + static_cast<uint32_t>(w.moments.size());
        clock.moment_barriers = w.barriers;
        w.moments.push_back({w.block, w.thread, w.barriers, clock.fences, clock.syncs});
    }
    return clock.moment;
}

static bool is_published(const Acquire &acquire, const Moment &m) {
    auto found = acquire.log->of_block.find(m.block);
    if (found == acquire.log->of_block.end()) return false;
    for (const Release &r : found->second)
        if (r.index < acquire.count &&
            (m.barriers < r.barriers || (m.thread == r.thread && m.fences < r.fences)))
            return true;
    return false;
}

static bool is_ordered(const Watch &w, const Moment &m) {
    if (m.block == w.block)
        return m.thread == w.thread || m.barriers < w.barriers ||
               (m.thread / WARP_LANES == w.thread / WARP_LANES &&
                m.syncs < w.clocks[w.thread].syncs);
    for (const Acquire &acquire : w.acquires)
        if ((acquire.state == Acquire::BLOCK ||
             (acquire.state == Acquire::FENCED && acquire.thread == w.thread)) &&
            is_published(acquire, m))
            return true;
    return false;
}

static bool is_shared(const Watch &w, uintptr_t byte) {
    auto after =
        std::upper_bound(w.shared.begin(), w.shared.end(), std::make_pair(byte, UINTPTR_MAX));
    return after != w.shared.begin() && byte < std::prev(after)->second;
}

// The moment of an earlier access, if it is by this kernel and to the same allocation.
static const Moment *moment_of(const Watch &w, uint32_t number, uintptr_t byte) {
    number &= ~ATOMIC;
    if (number < w.first) return nullptr;
    const Moment &m = w.moments[number - w.first];
    return m.block != w.block && is_shared(w, byte) ? nullptr : &m;
}

// ---- reports -----------------------------------------------------------------------------------

// "norm.cu:123", or the object and the offset where addr2line is missing.
static std::string place_of(uintptr_t code) {
    Dl_info info = {};
    if (dladdr(reinterpret_cast<void *>(code), &info) == 0) return "?";
    char text[4096];
    const uintptr_t offset = code - 1 - reinterpret_cast<uintptr_t>(info.dli_fbase);
    snprintf(text, sizeof text, "addr2line -i -e '%s' 0x%zx 2>/dev/null", info.dli_fname, offset);
    FILE *lines = popen(text, "r");
    std::string place = std::string(info.dli_fname) + "+" + std::to_string(offset);
    while (lines != nullptr && fgets(text, sizeof text, lines) != nullptr) {
        if (text[0] == '?') continue;
        const char *slash = strrchr(text, '/');
        place = slash == nullptr ? text : slash + 1;
        place.resize(strcspn(place.c_str(), " \n")); // "norm.cu:123 (discriminator 2)"
        if (place.find("cuda_runtime.h") == std::string::npos) break; // not inside an atomic
    }
    if (lines != nullptr) pclose(lines);
    return place;
}

// Completes an address of which the low 32 bits were kept, from the address of nearby code.
static uintptr_t code_of(uint32_t low, const void *near) {
    const uintptr_t here = reinterpret_cast<uintptr_t>(near), size = uintptr_t{1} << 32;
    uintptr_t code = (here & ~(size - 1)) | low;
    if (code > here && code - here > size / 2) return code - size;
    return code < here && here - code > size / 2 ? code + size : code;
}

static std::string where(const Watch &w, uintptr_t byte) {
    return is_shared(w, byte) ? "shared memory" : "memory";
}

[[noreturn]] static void report(const Watch &w, const Access &access, const char *did,
                                const Moment &m, uint32_t at) {
    static const char *const does[] = {"reads", "writes", "changes by an atomic"};
    std::string earlier = at == 0 ? "" : " at " + place_of(code_of(at, access.at));
    fail("race in %s: thread %u of block %u %s %s at %s, which thread %u of %s %s%s, and nothing "
         "orders the two",
         task_name(*thread_state().executing), w.thread, blockIdx.x, does[access.kind],
         where(w, access.byte).c_str(), place_of(reinterpret_cast<uintptr_t>(access.at)).c_str(),
         m.thread, m.block == w.block ? "the same block" : "another block", did, earlier.c_str());
}

// ---- accesses ----------------------------------------------------------------------------------

static void check(const Watch &w, const Access &access, uint32_t earlier, const char *did,
                  uint32_t at) {
    const Moment *m = moment_of(w, earlier, access.byte);
    if (m != nullptr && !is_ordered(w, *m)) report(w, access, did, *m, at);
}

static void check_written(const Watch &w, const Access &access, const Cell &cell) {
    if (w.shared.empty() || access.byte < w.shared.front().first ||
        access.byte >= w.shared.back().second || !is_shared(w, access.byte))
        return;
    if (moment_of(w, cell.write, access.byte) == nullptr)
        fail("%s: thread %u of block %u reads shared memory that no thread of its block has "
             "written, at %s",
             task_name(*thread_state().executing), w.thread, blockIdx.x,
             place_of(reinterpret_cast<uintptr_t>(access.at)).c_str());
}

static void on_read(const Watch &w, const Access &access, Cell &cell, uint32_t now) {
    if (cell.read == now) return; // no write since, which would have cleared it
    check_written(w, access, cell);
    if (cell.write != now)
        check(w, access, cell.write, cell.write & ATOMIC ? "changed by an atomic" : "wrote",
              cell.write_at);
    const Moment *m = cell.read == now ? nullptr : moment_of(w, cell.read, access.byte);
    if (m != nullptr && (m->thread != w.thread || m->block != w.block)) cell.other_read = cell.read;
    cell.read = now;
    cell.read_at = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(access.at));
}

static void on_write(const Watch &w, const Access &access, Cell &cell, uint32_t now) {
    const bool atomic = access.kind == Access::ATOMIC_CHANGE;
    if (cell.write == now && !atomic && cell.read == 0) return;
    if (atomic) check_written(w, access, cell);
    if (!atomic || (cell.write & ATOMIC) == 0)
        check(w, access, cell.write, cell.write & ATOMIC ? "changed by an atomic" : "wrote",
              cell.write_at);
    check(w, access, cell.read, "read", cell.read_at);
    check(w, access, cell.other_read, "read", 0);
    cell = {atomic ? now | ATOMIC : now, 0, 0,
            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(access.at)), 0};
}

static void on_access(const void *address, size_t bytes, Access::Kind kind, const void *at) {
    if (watching == nullptr) return;
    Watch &w = *watching;
    const uintptr_t frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    uintptr_t byte = reinterpret_cast<uintptr_t>(address);
    if (frame - w.stack >= FIBER_STACK || byte - w.stack < FIBER_STACK) return;
    const uint32_t now = moment_now(w);
    while (bytes > 0) {
        const size_t part = std::min<size_t>(bytes, Shadow::PAGE - byte % Shadow::PAGE);
        Cell *cells = w.shadow.cells(byte);
        const Cell first = cells[0];
        for (size_t i = 0; i < part; i++) {
            const Access access = {kind, byte + i, at};
            if (i > 0 && memcmp(&cells[i], &first, sizeof first) == 0)
                cells[i] = cells[0]; // the bytes of one number have equal histories
            else if (kind == Access::READ)
                on_read(w, access, cells[i], now);
            else
                on_write(w, access, cells[i], now);
        }
        byte += part;
        bytes -= part;
    }
}

// ---- calls by kernel.cpp and kernels ------------------------------------------------------------

void races_begin(const void *kernel) {
    Watch &w = state();
    w.first += static_cast<uint32_t>(w.moments.size());
    if (w.shadow.count() > PAGES_KEPT || w.first > ATOMIC / 2) {
        w.shadow.clear();
        w.first = 1;
    }
    w.moments.clear();
    w.logs.clear();
    w.shared.clear();
    static auto *known = new std::map<const void *, std::vector<SharedVariable>>;
    auto found = known->find(kernel);
    if (found == known->end()) found = known->insert({kernel, shared_variables(kernel)}).first;
    for (const SharedVariable &variable : found->second) {
        const auto begin = reinterpret_cast<uintptr_t>(variable.memory());
        w.shared.push_back({begin, begin + variable.bytes});
    }
    std::sort(w.shared.begin(), w.shared.end());
    watching = &w;
}

void races_block() {
    Watch &w = state();
    w.block++;
    w.barriers = 0;
    w.acquires.clear();
    std::fill_n(w.clocks, BLOCK_THREADS, Clock());
}

void races_thread(unsigned thread, const char *stack) {
    Watch &w = state();
    w.thread = thread;
    w.stack = reinterpret_cast<uintptr_t>(stack);
}

void races_barrier() {
    Watch &w = state();
    w.barriers++;
    for (Acquire &acquire : w.acquires)
        if (acquire.state == Acquire::FENCED) acquire.state = Acquire::BLOCK;
}

void races_warp() {
    Clock &clock = state().clocks[state().thread];
    clock.syncs++;
    clock.moment = 0;
}

void races_end() {
    watching = nullptr;
}

void race_fence() {
    if (watching == nullptr) return;
    Watch &w = *watching;
    Clock &clock = w.clocks[w.thread];
    clock.fences++;
    clock.fence_barriers = w.barriers;
    clock.moment = 0;
    for (Acquire &acquire : w.acquires)
        if (acquire.thread == w.thread && acquire.state == Acquire::READ)
            acquire.state = Acquire::FENCED;
}

void race_atomic(const void *address, size_t bytes, const void *at) {
    if (watching == nullptr) return;
    Watch &w = *watching;
    on_access(address, bytes, Access::ATOMIC_CHANGE, at);
    const Clock &clock = w.clocks[w.thread];
    auto found = w.logs.find(reinterpret_cast<uintptr_t>(address));
    if (found != w.logs.end())
        w.acquires.push_back({&found->second, found->second.count, w.thread, Acquire::READ});
    if (clock.fences == 0) return;
    Log &log = w.logs[reinterpret_cast<uintptr_t>(address)];
    log.of_block[w.block].push_back({log.count++, w.thread, clock.fences, clock.fence_barriers});
}

} // namespace emulator

// ---- calls by compiled code --------------------------------------------------------------------

#define HERE __builtin_return_address(0)
#define HOOKS(bytes)                                                        \
    extern "C" void __tsan_read##bytes(void *address) {                     \
        emulator::on_access(address, bytes, emulator::Access::READ, HERE);  \
    }                                                                       \
    extern "C" void __tsan_write##bytes(void *address) {                    \
        emulator::on_access(address, bytes, emulator::Access::WRITE, HERE); \
    }                                                                       \
    extern "C" void __tsan_unaligned_read##bytes(void *address) {           \
        emulator::on_access(address, bytes, emulator::Access::READ, HERE);  \
    }                                                                       \
    extern "C" void __tsan_unaligned_write##bytes(void *address) {          \
        emulator::on_access(address, bytes, emulator::Access::WRITE, HERE); \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" void __tsan_read_range(void *address, size_t bytes) {
    emulator::on_access(address, bytes, emulator::Access::READ, HERE);
}
extern "C" void __tsan_write_range(void *address, size_t bytes) {
    emulator::on_access(address, bytes, emulator::Access::WRITE, HERE);
}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
