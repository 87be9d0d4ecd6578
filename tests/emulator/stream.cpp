/* stream.cpp: streams and events. Work is queued, and executed late and in random order.
 *
 * A real GPU guarantees only that the work of one stream runs in order, and that an event is
 * reached after the work before it. Code that relies on more usually works, because a GPU usually
 * runs earlier calls first. Here no work runs before a thread waits for it, queries it, or a queue
 * is full, and the stream that runs next is chosen at random. Streams have random priorities, which
 * change now and then: one stream is often far ahead of another, and a missing event causes wrong
 * data with about every second seed.
 *
 * Waiting threads execute the work, one piece at a time, with the lock held. If no thread waits for
 * a while, a thread of the emulator does: another process may be waiting for this work.
 */
#include <algorithm>
#include <ctime>

#include "emulator.h"

namespace emulator {

enum : size_t { QUEUE_MAX = 1024 }; // tasks of one stream
enum : long { POLL_NS = 50 * 1000, IDLE_NS = 50 * 1000 * 1000 };

static void sleep_ns(long ns) {
    struct timespec pause = {0, ns};
    nanosleep(&pause, nullptr);
}

static double now_milliseconds() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// ---- execution ---------------------------------------------------------------------------------

static bool stream_can_go_on(const CUstream_st &stream) {
    if (stream.queue.empty() || stream.stalled) return false;
    const std::shared_ptr<Marker> &after = stream.queue.front().after;
    return after == nullptr || after->done;
}

static cudaStream_t choose_stream(Runtime &r) {
    cudaStream_t chosen = nullptr;
    for (auto &stream : r.streams)
        if (stream_can_go_on(*stream) && (chosen == nullptr || stream->priority > chosen->priority))
            chosen = stream.get();
    if (chosen != nullptr && r.settings.seed != 0 && r.random() % 8 == 0)
        chosen->priority = static_cast<unsigned>(r.random());
    return chosen;
}

static void forget_if_over(Runtime &r, cudaStream_t stream) {
    if (!stream->destroyed || !stream->queue.empty()) return;
    r.streams.erase(std::find_if(r.streams.begin(), r.streams.end(),
                                 [=](auto &entry) { return entry.get() == stream; }));
}

// Executes one task of some stream. Returns false if none can run at present.
static bool step(Runtime &r) {
    while (cudaStream_t stream = choose_stream(r)) {
        Task &task = stream->queue.front();
        if (task.work != nullptr) {
            memory_open(r, task.device, task.other);
            thread_state().executing = &task;
            stream->stalled = !task.work();
            thread_state().executing = nullptr;
            if (stream->stalled) continue;
        }
        r.steps++;
        stream->queue.pop_front();
        forget_if_over(r, stream);
        return true;
    }
    return false;
}

static void forget_stalls(Runtime &r) {
    for (auto &stream : r.streams) stream->stalled = false;
}

static bool is_stalled(const Runtime &r) {
    return std::any_of(r.streams.begin(), r.streams.end(),
                       [](const auto &stream) { return stream->stalled; });
}

static void runner_enter(Runtime &r) {
    r.runners++;
    forget_stalls(r);
}

static void runner_leave(Runtime &r) {
    if (--r.runners == 0) memory_close(r);
}

void run_until(Runtime &r, Lock &lock, const std::function<bool()> &condition) {
    runner_enter(r);
    while (!condition()) {
        bool done = step(r);
        if (!done && !is_stalled(r)) fail("the streams wait for each other for ever");
        lock.unlock(); // so that other threads can queue work
        if (!done) sleep_ns(POLL_NS);
        lock.lock();
        if (!done) forget_stalls(r);
    }
    runner_leave(r);
}

// For a caller that polls a condition: executes some work, so that the condition holds eventually.
static cudaError_t run_some(Runtime &r, const std::function<bool()> &condition) {
    runner_enter(r);
    for (size_t left = 1 + r.random() % 256; left > 0 && !condition() && step(r); left--) continue;
    runner_leave(r);
    if (!condition()) return cudaErrorNotReady;
    count_call(r, "the host finds that something is over");
    return cudaSuccess;
}

static void run_all(Runtime &r) {
    runner_enter(r);
    while (step(r)) continue;
    runner_leave(r);
}

void run_device(Runtime &r, Lock &lock, int device) {
    run_until(r, lock, [&r, device] {
        return std::all_of(r.streams.begin(), r.streams.end(), [=](const auto &stream) {
            return stream->device != device || stream->queue.empty();
        });
    });
}

// The thread that executes work for which no other thread waits. It runs until the process ends.
static void drive() {
    Runtime &r = runtime();
    uint64_t seen = 0;
    for (bool busy = false;; sleep_ns(busy ? IDLE_NS / 50 : IDLE_NS)) {
        Lock lock(r.mutex);
        if (r.closing) return;
        busy = false;
        if (r.runners == 0 && r.steps == seen) {
            run_all(r);
            busy = r.steps != seen || is_stalled(r);
        }
        seen = r.steps;
    }
}

// ---- queueing ----------------------------------------------------------------------------------

cudaStream_t stream_find(Runtime &r, cudaStream_t stream) {
    if (stream == nullptr) fail("the default stream is not emulated: create a stream");
    for (auto &entry : r.streams)
        if (entry.get() == stream && !stream->destroyed) return stream;
    return nullptr;
}

void stream_enqueue(Runtime &r, Lock &lock, cudaStream_t stream, Task task) {
    if (stream->capture != nullptr) {
        capture_record(stream, std::move(task));
        return;
    }
    count_task(r, stream, task);
    if (stream->queue.size() >= QUEUE_MAX)
        run_until(r, lock, [=] { return stream->queue.size() < QUEUE_MAX / 2; });
    stream->queue.push_back(std::move(task));
    if (r.settings.seed == 0) run_all(r);
}

// Called outside of the lock, by the emulated NCCL.
cudaError_t stream_put(cudaStream_t stream, const char *what, Work work) {
    return call([&](Runtime &r, Lock &lock) {
        if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
        Task task;
        task.what = what;
        task.device = stream->device;
        task.work = std::move(work);
        stream_enqueue(r, lock, stream, std::move(task));
        return cudaSuccess;
    });
}

int stream_device(cudaStream_t stream) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    return stream_find(r, stream) == nullptr ? HOST : stream->device;
}

bool stream_is_recording(cudaStream_t stream) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    return stream_find(r, stream) != nullptr && stream->capture != nullptr;
}

static cudaError_t stream_create(Runtime &r, cudaStream_t *stream) {
    r.streams.push_back(std::make_unique<CUstream_st>());
    *stream = r.streams.back().get();
    (*stream)->device = thread_state().device;
    (*stream)->priority = static_cast<unsigned>(r.random());
    if (!r.driving) {
        r.driving = true;
        std::thread(drive).detach();
    }
    return cudaSuccess;
}

static cudaError_t stream_destroy(Runtime &r, cudaStream_t stream) {
    if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) stream->capture->invalid = true;
    stream->destroyed = true; // its queued work still runs, as in CUDA
    forget_if_over(r, stream);
    return cudaSuccess;
}

static cudaError_t stream_synchronize(Runtime &r, Lock &lock, cudaStream_t stream) {
    if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
    cudaError_t error = capture_forbids_wait(r, stream);
    count_call(r, "cudaStreamSynchronize");
    if (error == cudaSuccess) run_until(r, lock, [=] { return stream->queue.empty(); });
    return error;
}

static cudaError_t stream_query(Runtime &r, cudaStream_t stream) {
    if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
    cudaError_t error = capture_forbids_wait(r, stream);
    return error != cudaSuccess ? error : run_some(r, [=] { return stream->queue.empty(); });
}

static cudaError_t stream_wait(Runtime &r, Lock &lock, cudaStream_t stream, cudaEvent_t event) {
    if (stream_find(r, stream) == nullptr || r.events.count(event) == 0)
        return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr || event->capture != nullptr) return capture_wait(stream, event);
    if (event->last == nullptr) // never recorded: returns at once
        return cudaSuccess;
    Task task;
    task.what = "cudaStreamWaitEvent";
    task.after = event->last;
    stream_enqueue(r, lock, stream, std::move(task));
    return cudaSuccess;
}

// ---- events ------------------------------------------------------------------------------------

static cudaError_t event_create(Runtime &r, cudaEvent_t *event, unsigned flags) {
    *event = new CUevent_st{};
    (*event)->device = thread_state().device;
    (*event)->timing = (flags & cudaEventDisableTiming) == 0;
    r.events.insert(*event);
    return cudaSuccess;
}

static cudaError_t event_record(Runtime &r, Lock &lock, cudaEvent_t event, cudaStream_t stream) {
    if (stream_find(r, stream) == nullptr || r.events.count(event) == 0 ||
        event->device != stream->device)
        return cudaErrorInvalidResourceHandle;
    event->capture = stream->capture;
    event->tail = stream->tail;
    event->last = nullptr;
    if (stream->capture != nullptr) return cudaSuccess;
    auto marker = std::make_shared<Marker>();
    event->last = marker;
    Task task;
    task.what = "cudaEventRecord";
    task.device = stream->device;
    task.work = [marker] {
        marker->done = true;
        marker->milliseconds = now_milliseconds();
        return true;
    };
    stream_enqueue(r, lock, stream, std::move(task));
    return cudaSuccess;
}

// For query and synchronize: returns an error if the event cannot be waited for.
static cudaError_t event_check(Runtime &r, cudaEvent_t event) {
    if (r.events.count(event) == 0) return cudaErrorInvalidResourceHandle;
    if (event->capture != nullptr) {
        event->capture->invalid = true;
        return cudaErrorCapturedEvent;
    }
    return capture_forbids(r);
}

static cudaError_t event_query(Runtime &r, cudaEvent_t event) {
    cudaError_t error = event_check(r, event);
    if (error != cudaSuccess || event->last == nullptr) return error;
    return run_some(r, [marker = event->last] { return marker->done; });
}

static cudaError_t event_synchronize(Runtime &r, Lock &lock, cudaEvent_t event) {
    cudaError_t error = event_check(r, event);
    count_call(r, "cudaEventSynchronize");
    if (error == cudaSuccess && event->last != nullptr)
        run_until(r, lock, [marker = event->last] { return marker->done; });
    return error;
}

static cudaError_t event_elapsed(Runtime &r, float *milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
    for (cudaEvent_t event : {start, end})
        if (r.events.count(event) == 0 || !event->timing || event->last == nullptr)
            return cudaErrorInvalidResourceHandle;
    if (!start->last->done || !end->last->done) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(end->last->milliseconds - start->last->milliseconds);
    return cudaSuccess;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return call([=](Runtime &r, Lock &) { return stream_create(r, stream); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    return cudaStreamCreate(stream);
}

enum { GREATEST_PRIORITY = -5 }; // the lowest is 0

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int priority) {
    return call([=](Runtime &r, Lock &) {
        cudaError_t error = stream_create(r, stream);
        if (error == cudaSuccess)
            (*stream)->asked_priority = std::clamp(priority, int{GREATEST_PRIORITY}, 0);
        return error;
    });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    return call([=](Runtime &r, Lock &) {
        if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
        *priority = stream->asked_priority;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return call([=](Runtime &r, Lock &) { return stream_destroy(r, stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return call([=](Runtime &r, Lock &lock) { return stream_synchronize(r, lock, stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return call([=](Runtime &r, Lock &) { return stream_query(r, stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return call([=](Runtime &r, Lock &lock) { return stream_wait(r, lock, stream, event); });
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return call([=](Runtime &r, Lock &) { return event_create(r, event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return call([=](Runtime &r, Lock &) {
        if (r.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
        delete event;
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return call([=](Runtime &r, Lock &lock) { return event_record(r, lock, event, stream); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return call([=](Runtime &r, Lock &) { return event_query(r, event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return call([=](Runtime &r, Lock &lock) { return event_synchronize(r, lock, event); });
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return call([=](Runtime &r, Lock &) { return event_elapsed(r, milliseconds, start, end); });
}
