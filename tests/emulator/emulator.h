/* emulator.h: what the emulator's own files share: the state of the emulated machine, and who does
 * what to it. What the emulator is for, and what it cannot do, is at the top of emulator.cpp.
 *
 * All state is one Runtime behind one lock. Every cuda* function takes it through call(), and work
 * of streams is carried out with it held, so no two threads ever run emulated work at once.
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

enum { DEVICES_MAX = 8, HOST = -1, UNKNOWN = -2 }; // HOST and UNKNOWN: in place of a device

struct Settings { // read from the environment once (emulator.cpp)
    int devices;
    int cards[DEVICES_MAX]; // the machine's number of each device
    int capability;         // 10 major + minor: 75 is a T4, which has no bfloat16 and no TF32
    bool peers;
    size_t memory;     // bytes per device
    size_t queues;     // that streams share
    unsigned seed;     // 0: everything at once and in order
    bool count;        // print at the end the counted calls (count.cpp)
    bool relu_nan;     // cuBLASLt's RELU keeps NaN
    bool tensor_cores; // have the documented layout
    size_t kernel_fails_at;
    bool launches_block; // CUDA_LAUNCH_BLOCKING
    // What cuDNN refuses to run though its queries promised it, or to be asked about (dnn.cpp).
    bool refuses_channels_last, refuses_preferred, refuses_memory, refuses_all, refuses_queries;
    // What cuBLASLt knows no algorithm for, or does not run though it knew one (blas.cpp).
    bool refuses_epilogues, breaks_epilogues;
};

// ---- work (stream.cpp) -------------------------------------------------------------------------

// What an event stands for after it was recorded: a place in a stream that was reached, or not yet.
struct Marker {
    bool done = false;
    double milliseconds = 0; // when it was reached
};

struct Task {
    const char *what = "";
    const void *kernel = nullptr;  // more about what it is: its name is looked up if need be
    size_t bytes = 0;              // of a copy
    int device = HOST;             // whose memory it may touch
    int other = HOST;              // a copy between two devices: the second one
    Work work;                     // none: the task is only waiting
    std::shared_ptr<Marker> after; // it must not begin before this is done
};

// ---- recorded work (graph.cpp) -----------------------------------------------------------------

struct Node {
    Task task;
    std::vector<size_t> after; // earlier nodes that must be done before
};
using Nodes = std::vector<Node>; // in the order of recording: what comes after comes later

struct Capture {
    Nodes nodes;
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool invalid = false; // something that cannot be recorded was asked for
};

} // namespace emulator

struct CUstream_st {
    int device;
    std::deque<emulator::Task> queue;
    bool destroyed = false; // goes away when the queue is empty
    bool stalled = false;   // its first task waits for another process
    bool computes = false;  // it was given a kernel
    unsigned priority = 0;  // the highest goes first; changes at random
    int asked_priority = 0; // CUDA's, of cudaStreamCreateWithPriority; has no effect here
    std::shared_ptr<emulator::Capture> capture;
    std::vector<size_t> tail; // while recording: the nodes that the next one comes after
};

struct CUevent_st {
    int device;
    bool timing;
    std::shared_ptr<emulator::Marker> last;     // the last record outside of a recording
    std::shared_ptr<emulator::Capture> capture; // if the last record was inside of one
    std::vector<size_t> tail;
};

namespace emulator {

// ---- memory (memory.cpp) -----------------------------------------------------------------------

struct Allocation {
    char *memory;
    size_t bytes;
    int device;          // HOST: pinned
    char *inner, *outer; // its pages, and these with the guard pages on both sides
    size_t inner_bytes, outer_bytes;
    bool open; // the host can touch it now
};
using Allocations = std::map<const char *, Allocation>; // by outer

struct Device {
    size_t used = 0;
    bool peers[DEVICES_MAX] = {}; // whose memory its work may touch beside its own
};

struct Count {
    uint64_t times = 0, bytes = 0;
};

struct Runtime {
    std::mutex mutex;
    Settings settings;
    int process; // a child of fork cannot use CUDA
    std::mt19937 random;
    Device devices[DEVICES_MAX];

    Allocations allocations, freed;
    int open_device = HOST, open_other = HOST; // for whom device memory is accessible now

    std::vector<std::unique_ptr<CUstream_st>> streams;
    std::set<cudaEvent_t> events;
    std::vector<std::shared_ptr<Capture>> captures;
    std::set<const void *> graphs;
    int runners = 0;    // threads that carry out work, or wait to
    uint64_t steps = 0; // pieces of work done
    uint64_t kernels = 0;
    cudaError_t broken = cudaSuccess; // what every call returns after a kernel has failed
    std::map<std::pair<const void *, const char *>, Count> counts; // by kernel, or what it is
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
// Ends the program with a line about what the emulated program did wrong.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

cudaError_t runtime_check(const Runtime &r);   // can CUDA be used at all?
cudaError_t error_remember(cudaError_t error); // as the thread's last error; returns it

// What all cuda* functions do around their own work.
template <typename Body> cudaError_t call(Body body) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    cudaError_t error = runtime_check(r);
    return error_remember(error != cudaSuccess ? error : body(r, lock));
}

// "name<float>(float*)" of a kernel, or its address if it has no name (symbols.cpp).
const char *symbol_name(const void *function);
const char *task_name(const Task &task);

// A __shared__ variable: thread-local, so its address is a place in each thread's storage of the
// object (module) that it belongs to.
struct SharedVariable {
    size_t module, offset, bytes;
    char *memory() const; // the calling thread's
};
// All that the kernel's object has, whichever of its kernels use them (symbols.cpp).
std::vector<SharedVariable> shared_variables(const void *kernel);

// Fills the __shared__ variables of the kernel with NaN before a block begins, and learns after
// the first and the last block of its first launch which of its object's it writes (shared.cpp).
void shared_before_block(const void *kernel, bool is_edge);
void shared_after_block(const void *kernel, bool is_edge);
void shared_after_kernel(const void *kernel);

// For DDPC_EMULATOR_COUNT (count.cpp): work that is queued, and calls that cost something else.
void count_task(Runtime &r, cudaStream_t stream, const Task &task);
void count_call(Runtime &r, const char *name);
void count_report(const Runtime &r);

// Makes exactly the memory accessible that work of `device` may touch, and that of `other`.
void memory_open(Runtime &r, int device, int other);
void memory_close(Runtime &r);
// The allocation (not freed) in whose pages or guard pages the address lies, or NULL.
const Allocation *memory_find(const Allocations &allocations, const void *address);
// The allocation that [memory, memory + bytes) lies in, or NULL.
const Allocation *memory_holding(const Runtime &r, const void *memory, size_t bytes);
void memory_check_canaries(const Allocation &allocation);
// Ends the program unless [memory, memory + bytes) lies in one piece of device memory.
void memory_check(const Runtime &r, const char *what, const void *memory, size_t bytes);

cudaStream_t stream_find(Runtime &r, cudaStream_t stream); // NULL: it is none
// Queues or records. The caller has checked the stream.
void stream_enqueue(Runtime &r, Lock &lock, cudaStream_t stream, Task task);
// Carries out work until the condition holds. The lock is given up now and then.
void run_until(Runtime &r, Lock &lock, const std::function<bool()> &condition);
void run_device(Runtime &r, Lock &lock, int device); // until all of the device's work is done

void capture_record(cudaStream_t stream, Task task);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);
// For calls that must not happen while a stream is recording: an error (and the recording fails),
// if the thread or another one is.
cudaError_t capture_forbids(Runtime &r);
// The same for calls that wait for the stream.
cudaError_t capture_forbids_wait(Runtime &r, cudaStream_t stream);

} // namespace emulator

#endif
