/* emulator.h: the emulated machine's state and the functions shared by the emulator's files. The
 * emulator's purpose and limits: emulator.cpp.
 *
 * All state is one Runtime, protected by one lock. Every cuda* function takes the lock through
 * call(), and the work of streams is executed with the lock held, so no two threads execute
 * emulated work at the same time.
 */
#ifndef TESTS_EMULATOR_EMULATOR_H
#define TESTS_EMULATOR_EMULATOR_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "stream.h"

namespace emulator {

enum { DEVICES_MAX = 8, HOST = -1, UNKNOWN = -2 }; // HOST, UNKNOWN: instead of a device number

struct Settings { // read from the environment once (emulator.cpp)
    int devices;
    int cards[DEVICES_MAX]; // number of each device on the machine
    int capability;         // 10 major + minor: 75 is a T4, which has no bfloat16 and no TF32
    bool peers;
    size_t memory;     // bytes per device
    size_t queues;     // hardware queues, which streams share
    unsigned seed;     // 0: work runs at once and in order
    bool count;        // print the counted calls at the end (count.cpp)
    bool relu_nan;     // cuBLASLt's RELU keeps NaN
    bool tensor_cores; // fragments have the documented layout
    size_t kernel_fails_at;
    bool launches_block; // CUDA_LAUNCH_BLOCKING
    // Convolutions that cuDNN refuses to run although its queries allowed them, and refused queries
    // (dnn.cpp).
    bool refuses_channels_last, refuses_preferred, refuses_memory, refuses_all, refuses_queries;
    // Epilogues for which cuBLASLt finds no algorithm, or fails to run the algorithm found
    // (blas.cpp).
    bool refuses_epilogues, breaks_epilogues;
};

// ---- work (stream.cpp) -------------------------------------------------------------------------

// The state of a recorded event: whether its place in the stream was reached.
struct Marker {
    bool done = false;
    double milliseconds = 0; // time at which it was reached
};

struct Task {
    const char *what = "";
    const void *kernel = nullptr;  // its name is looked up for messages
    size_t bytes = 0;              // of a copy
    int device = HOST;             // the device whose memory it may access
    int other = HOST;              // of a copy between two devices: the second one
    Work work;                     // empty: the task only waits
    std::shared_ptr<Marker> after; // it begins only after this is done
};

// ---- recorded work (graph.cpp) -----------------------------------------------------------------

struct Node {
    Task task;
    std::vector<size_t> after; // indices of earlier nodes that must be done before
};
using Nodes = std::vector<Node>; // in the order of recording, which is a topological order

struct Capture {
    Nodes nodes;
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool invalid = false; // an operation that cannot be recorded was called
};

} // namespace emulator

struct CUstream_st {
    int device;
    std::deque<emulator::Task> queue;
    bool destroyed = false; // erased when the queue is empty
    bool stalled = false;   // its first task waits for another process
    bool computes = false;  // a kernel was launched on it
    unsigned priority = 0;  // the stream with the highest runs first; changes at random
    int asked_priority = 0; // of cudaStreamCreateWithPriority; without effect here
    std::shared_ptr<emulator::Capture> capture;
    std::vector<size_t> tail; // while recording: predecessors of the next node
};

struct CUevent_st {
    int device;
    bool timing;
    std::shared_ptr<emulator::Marker> last;     // the last record outside of a capture
    std::shared_ptr<emulator::Capture> capture; // the last record's capture, if it was inside one
    std::vector<size_t> tail;
};

namespace emulator {

// ---- memory (memory.cpp) -----------------------------------------------------------------------

struct Allocation {
    char *memory;
    size_t bytes;
    int device;          // HOST: pinned memory
    char *inner, *outer; // its pages; its pages with the guard pages on both sides
    size_t inner_bytes, outer_bytes;
    bool open; // currently accessible to the host
};
using Allocations = std::map<const char *, Allocation>; // key: outer

struct Device {
    size_t used = 0;
    bool peers[DEVICES_MAX] = {}; // devices whose memory its work may access besides its own
};

struct Count {
    uint64_t times = 0, bytes = 0;
};

struct Runtime {
    std::mutex mutex;
    Settings settings;
    int process; // the process of the first call; a child of fork cannot use CUDA
    std::mt19937 random;
    Device devices[DEVICES_MAX];

    Allocations allocations, freed;
    int open_device = HOST, open_other = HOST; // devices whose memory is accessible now

    std::vector<std::unique_ptr<CUstream_st>> streams;
    std::set<cudaEvent_t> events;
    std::vector<std::shared_ptr<Capture>> captures;
    std::set<const void *> graphs;
    int runners = 0;    // threads that execute work or wait for their turn
    uint64_t steps = 0; // executed pieces of work
    uint64_t kernels = 0;
    cudaError_t broken = cudaSuccess; // returned by every call after a kernel has failed
    std::map<std::pair<const void *, const char *>, Count> counts; // by kernel or name of the call
    bool driving = false, closing = false;
};

struct ThreadState {
    int device = 0;
    cudaError_t last_error = cudaSuccess;
    const Task *executing = nullptr;
};

using Lock = std::unique_lock<std::mutex>;

Runtime &runtime();
ThreadState &thread_state();
// Ends the program with a message about an error of the emulated program.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

cudaError_t runtime_check(const Runtime &r);   // whether CUDA can be used at all
cudaError_t error_remember(cudaError_t error); // sets the thread's last error; returns it

// Runs body as a cuda* function: with the lock held, after the checks common to all calls.
template <typename Body> cudaError_t call(Body body) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    cudaError_t error = runtime_check(r);
    return error_remember(error != cudaSuccess ? error : body(r, lock));
}

// "name<float>(float*)" of a kernel, or its address if it has no name (symbols.cpp).
const char *symbol_name(const void *function);
const char *task_name(const Task &task);

// A __shared__ variable. It is thread-local, so each thread has a copy in its storage of the object
// (module) that the variable belongs to.
struct SharedVariable {
    size_t module, offset, bytes;
    char *memory() const; // the calling thread's copy
};
// All __shared__ variables of the kernel's object, whichever of its kernels use them (symbols.cpp).
std::vector<SharedVariable> shared_variables(const void *kernel);

// Before a block: fills the kernel's __shared__ variables with NaN. After the first and the last
// block of the kernel's first launch (is_edge): finds the variables that the kernel writes
// (shared.cpp).
void shared_before_block(const void *kernel, bool is_edge);
void shared_after_block(const void *kernel, bool is_edge);
void shared_after_kernel(const void *kernel);

// Count for DDPC_EMULATOR_COUNT (count.cpp): queued work, and other calls that cost time.
void count_task(Runtime &r, cudaStream_t stream, const Task &task);
void count_call(Runtime &r, const char *name);
void count_report(const Runtime &r);

// Makes the memory of `device` and of `other`, with their enabled peers, accessible and all other
// device memory inaccessible.
void memory_open(Runtime &r, int device, int other);
void memory_close(Runtime &r);
// Returns the allocation, not yet freed, whose pages or guard pages contain the address, or NULL.
const Allocation *memory_find(const Allocations &allocations, const void *address);
// Returns the allocation that contains [memory, memory + bytes), or NULL.
const Allocation *memory_holding(const Runtime &r, const void *memory, size_t bytes);
void memory_check_canaries(const Allocation &allocation);
// Ends the program unless [memory, memory + bytes) is inside one allocation of device memory.
void memory_check(const Runtime &r, const char *what, const void *memory, size_t bytes);

cudaStream_t stream_find(Runtime &r, cudaStream_t stream); // NULL: not a stream
// Queues the task, or records it into a graph. The caller has checked the stream.
void stream_enqueue(Runtime &r, Lock &lock, cudaStream_t stream, Task task);
// Executes work until the condition holds. Releases the lock between pieces of work.
void run_until(Runtime &r, Lock &lock, const std::function<bool()> &condition);
void run_device(Runtime &r, Lock &lock, int device); // until all work of the device is done

void capture_record(cudaStream_t stream, Task task);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);
// For calls that are not allowed during a capture: if the thread's or another thread's capture
// forbids the call, returns an error and invalidates the capture.
cudaError_t capture_forbids(Runtime &r);
// The same for calls that wait for the stream.
cudaError_t capture_forbids_wait(Runtime &r, cudaStream_t stream);

} // namespace emulator

#endif
