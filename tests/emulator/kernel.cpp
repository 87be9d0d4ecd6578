/* kernel.cpp: carries out a kernel: block after block, the threads of a block as fibers.
 *
 * A fiber is a separate stack. It runs one thread of the block after another, as ordinary calls,
 * until one of them must wait at a barrier or a shuffle: then the fiber is suspended with that
 * thread on its stack, and another fiber runs the threads that have not begun. When all threads
 * have begun, each has ended or waits, and a thread whose condition holds is resumed. If no thread
 * can be resumed, the kernel is wrong (a barrier that not all threads reach, a shuffle whose mask
 * names lanes that do not arrive), and the program ends with the thread and the place of its wait.
 *
 * Blocks, and the threads of a block, begin in ascending or descending order from a random one on,
 * so that a missing __syncthreads usually changes results. With -DEMULATED_RACES=ON each access is
 * checked, too (races/races.h).
 */
#include <algorithm>
#include <cstdio>
#include <deque>

#include <cuda_runtime.h>

#include "emulator.h"
#include "fiber.h"
#include "races.h"

__thread uint3 threadIdx, blockIdx;
__thread uint3 blockDim, gridDim;

namespace emulator {

enum : unsigned { WARP = 32, THREADS_MAX = 1024 };

struct Thread { // of the current block
    enum { NOT_BEGUN, AT_BARRIER, AT_EXCHANGE, ENDED } state;
    Fiber *fiber;
    // Its operands and results of the barrier or exchange.
    bool predicate, ballot;
    unsigned mask, source;
    uint64_t value;
    std::deque<LateCopy> copies;
};

// A permutation of 0 .. count - 1: ascending or descending from a first index.
struct Order {
    size_t count, first;
    bool descending;
    size_t at(size_t i) const { return (first + (descending ? count - i : i)) % count; }
};

struct Block {
    const std::function<void()> *call; // runs one thread of the kernel
    Order order;
    unsigned count, begun, ended, at_barrier; // numbers of threads
    unsigned current;
    Thread threads[THREADS_MAX];
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber *> idle;
};

// The block that this host thread runs. Its fibers are reused by the next kernels.
static Block &block() {
    static thread_local Block block;
    return block;
}

static uint3 place(size_t index, const uint3 &size) {
    return {static_cast<unsigned>(index % size.x), static_cast<unsigned>(index / size.x % size.y),
            static_cast<unsigned>(index / size.x / size.y)};
}

// Runs threads of the block until all have begun, then suspends itself until the next block.
static void fiber_body(Fiber *self) {
    Block &b = block();
    for (;; self->suspend()) {
        while (b.begun < b.count) {
            b.current = static_cast<unsigned>(b.order.at(b.begun++));
            b.threads[b.current].fiber = self;
            threadIdx = place(b.current, blockDim);
            races_thread(b.current, self->stack());
            (*b.call)();
            b.threads[b.current].state = Thread::ENDED;
            b.ended++;
        }
        b.idle.push_back(self);
    }
}

static Fiber *take_fiber() {
    Block &b = block();
    if (b.idle.empty()) {
        b.fibers.push_back(std::make_unique<Fiber>(fiber_body));
        return b.fibers.back().get();
    }
    Fiber *fiber = b.idle.back();
    b.idle.pop_back();
    return fiber;
}

static void resume_thread(unsigned index) {
    block().current = index;
    threadIdx = place(index, blockDim);
    races_thread(index, block().threads[index].fiber->stack());
    block().threads[index].fiber->resume();
}

// ---- wake-ups ----------------------------------------------------------------------------------

// If all lanes that `first` waits for have arrived, gives each its value and wakes it.
static bool release_lanes(unsigned warp, unsigned first) {
    Thread *lanes = &block().threads[warp * WARP];
    unsigned lanes_count = std::min<unsigned>(WARP, block().count - warp * WARP);
    unsigned mask = lanes[first].mask, votes = 0;
    uint64_t values[WARP] = {};
    for (unsigned lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) {
            if (lane >= lanes_count || lanes[lane].state != Thread::AT_EXCHANGE ||
                lanes[lane].mask != mask || lanes[lane].ballot != lanes[first].ballot)
                return false;
            values[lane] = lanes[lane].value;
            votes |= static_cast<unsigned>(lanes[lane].predicate) << lane;
        }
    for (unsigned lane = 0; lane < lanes_count; lane++)
        if (mask >> lane & 1) {
            if ((mask >> lanes[lane].source & 1) == 0)
                fail("a shuffle in %s reads lane %u, which is not in its mask %08x",
                     task_name(*thread_state().executing), lanes[lane].source, mask);
            lanes[lane].value = lanes[lane].ballot ? votes : values[lanes[lane].source];
        }
    for (unsigned lane = 0; lane < lanes_count; lane++)
        if (mask >> lane & 1) resume_thread(warp * WARP + lane);
    return true;
}

static bool release_warps() {
    Block &b = block();
    bool any = false;
    for (unsigned i = 0; i < b.count; i++)
        while (b.threads[i].state == Thread::AT_EXCHANGE && release_lanes(i / WARP, i % WARP))
            any = true;
    return any;
}

static bool release_barrier() {
    Block &b = block();
    if (b.at_barrier < b.count) return false;
    unsigned votes = 0;
    for (unsigned i = 0; i < b.count; i++) votes += b.threads[i].predicate;
    b.at_barrier = 0;
    races_barrier();
    for (unsigned i = 0; i < b.count; i++) b.threads[i].value = votes;
    for (size_t i = 0; i < b.count; i++) resume_thread(static_cast<unsigned>(b.order.at(i)));
    return true;
}

[[noreturn]] static void fail_waiting() {
    Block &b = block();
    static const char *const names[] = {"have not begun", "wait in __syncthreads",
                                        "wait for other lanes of their warp", "have ended"};
    char text[256] = "";
    size_t length = 0;
    for (int state = 0; state < 4; state++) {
        unsigned count = 0, first = 0;
        for (unsigned i = b.count; i-- > 0;)
            if (b.threads[i].state == state) {
                count++;
                first = i;
            }
        if (count > 0)
            length += static_cast<size_t>(snprintf(text + length, sizeof text - length,
                                                   "%s%u %s (thread %u)", length > 0 ? ", " : "",
                                                   count, names[state], first));
    }
    fail("%s, block (%u, %u, %u): its threads do not all reach the same place: %s",
         task_name(*thread_state().executing), blockIdx.x, blockIdx.y, blockIdx.z, text);
}

static void run_block(const std::function<void()> &kernel, const Order &order) {
    Block &b = block();
    b.call = &kernel;
    b.order = order;
    b.count = static_cast<unsigned>(order.count);
    b.begun = b.ended = b.at_barrier = 0;
    for (unsigned i = 0; i < b.count; i++) b.threads[i].state = Thread::NOT_BEGUN;
    while (b.begun < b.count) take_fiber()->resume();
    while (b.ended < b.count)
        if (!release_warps() && !release_barrier()) fail_waiting();
}

// ---- functions of kernels ----------------------------------------------------------------------

static Thread &wait(int state) {
    Thread &thread = block().threads[block().current];
    thread.state = static_cast<decltype(thread.state)>(state);
    thread.fiber->suspend();
    return thread;
}

int barrier(Vote vote, int predicate) {
    Block &b = block();
    b.threads[b.current].predicate = predicate != 0;
    b.at_barrier++;
    unsigned votes = static_cast<unsigned>(wait(Thread::AT_BARRIER).value);
    switch (vote) {
    case Vote::all:
        return votes == b.count;
    case Vote::any:
        return votes > 0;
    default:
        return static_cast<int>(votes);
    }
}

static uint64_t exchange(unsigned mask, uint64_t value, unsigned source, bool ballot,
                         bool predicate) {
    Thread &thread = block().threads[block().current];
    thread.mask = mask;
    thread.value = value;
    thread.source = source;
    thread.ballot = ballot;
    thread.predicate = predicate;
    if ((mask >> block().current % WARP & 1) == 0)
        fail("lane %u of %s is not in the mask %08x that it passes", block().current % WARP,
             task_name(*thread_state().executing), mask);
    return wait(Thread::AT_EXCHANGE).value;
}

uint64_t warp_exchange(unsigned mask, uint64_t value, unsigned source) {
    return exchange(mask, value, source, false, false);
}

unsigned warp_ballot(unsigned mask, bool predicate) {
    return static_cast<unsigned>(exchange(mask, 0, block().current % WARP, true, predicate));
}

void warp_sync(unsigned mask) {
    const unsigned first = block().current / WARP * WARP, lanes = block().count - first;
    const unsigned all = lanes < WARP ? (1u << lanes) - 1 : ~0u;
    warp_ballot(mask, false);
    if ((mask & all) == all) races_warp();
}

void copy_later(const LateCopy &copy) {
    block().threads[block().current].copies.push_back(copy);
}

bool copy_next(LateCopy *copy) {
    std::deque<LateCopy> &copies = block().threads[block().current].copies;
    if (copies.empty()) return false;
    *copy = copies.front();
    copies.pop_front();
    return true;
}

bool tensor_cores_are_sound() {
    return runtime().settings.tensor_cores;
}

unsigned warp_source(Shuffle shuffle, unsigned argument, int width) {
    unsigned lane = block().current % WARP, size = static_cast<unsigned>(width);
    unsigned begin = lane / size * size, source = lane;
    switch (shuffle) {
    case Shuffle::index:
        return begin + argument % size;
    case Shuffle::up:
        return lane - begin >= argument ? lane - argument : lane;
    case Shuffle::down:
        source = lane + argument;
        break;
    case Shuffle::exclusive_or:
        source = lane ^ argument;
        break;
    }
    return source < begin + size ? source : lane;
}

// ---- launches ----------------------------------------------------------------------------------

static Order random_order(Runtime &r, size_t count) {
    if (r.settings.seed == 0) return {count, 0, false};
    return {count, r.random() % count, r.random() % 2 != 0};
}

static bool run_kernel(const cudaLaunchConfig_t &config, const void *kernel,
                       const std::function<void()> &thread) {
    Runtime &r = runtime();
    if (++r.kernels == r.settings.kernel_fails_at) r.broken = cudaErrorIllegalAddress;
    if (r.broken != cudaSuccess) return true;
    dim3 grid = config.gridDim, threads = config.blockDim;
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {threads.x, threads.y, threads.z};
    Order blocks = random_order(r, static_cast<size_t>(grid.x) * grid.y * grid.z);
    races_begin(kernel);
    for (size_t i = 0; i < blocks.count; i++) {
        const bool is_edge = i == 0 || i + 1 == blocks.count;
        blockIdx = place(blocks.at(i), gridDim);
        shared_before_block(kernel, is_edge);
        races_block();
        run_block(thread, random_order(r, threads.x * threads.y * threads.z));
        shared_after_block(kernel, is_edge);
    }
    races_end();
    shared_after_kernel(kernel);
    return true;
}

static bool config_is_valid(const dim3 &grid, const dim3 &threads) {
    return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff && grid.y <= 65535 &&
           grid.z <= 65535 && threads.x > 0 && threads.y > 0 && threads.z > 0 &&
           threads.x <= THREADS_MAX && threads.y <= THREADS_MAX && threads.z <= 64 &&
           threads.x * threads.y * threads.z <= THREADS_MAX;
}

static cudaError_t launch(Runtime &r, Lock &lock, const cudaLaunchConfig_t &config, Task task,
                          const void *const *pointers, size_t count) {
    if (stream_find(r, config.stream) == nullptr || config.stream->device != thread_state().device)
        return cudaErrorInvalidResourceHandle;
    if (!config_is_valid(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes != 0 || config.numAttrs != 0) return cudaErrorNotSupported;
    for (size_t i = 0; i < count; i++)
        if (pointers[i] != nullptr && memory_find(r.allocations, pointers[i]) == nullptr)
            fail("argument %zu of %s points to %s", i + 1, task_name(task),
                 memory_find(r.freed, pointers[i]) != nullptr ? "memory that was freed"
                                                              : "ordinary memory of the host");
    task.device = config.stream->device;
    stream_enqueue(r, lock, config.stream, std::move(task));
    if (r.settings.launches_block && config.stream->capture == nullptr)
        run_until(r, lock, [&] { return config.stream->queue.empty(); });
    return r.broken;
}

cudaError_t kernel_launch(const cudaLaunchConfig_t &config, const void *kernel,
                          std::function<void()> thread, const void *const *pointers, size_t count) {
    Task task;
    task.what = "kernel";
    task.kernel = kernel;
    task.work = [config, kernel, thread = std::move(thread)] {
        return run_kernel(config, kernel, thread);
    };
    return call([&](Runtime &r, Lock &lock) {
        return launch(r, lock, config, std::move(task), pointers, count);
    });
}

} // namespace emulator
