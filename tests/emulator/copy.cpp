/* copy.cpp: cudaMemcpyAsync and cudaMemsetAsync.
 *
 * The time at which a copy accesses host memory depends on the kind of memory, as in CUDA: pageable
 * memory is read or written before the call returns; pinned memory when the copy runs in its
 * stream, so that a program that changes or reads it too early gets wrong data.
 */
#include <cstring>

#include "emulator.h"

namespace emulator {

enum class Place { device, pinned, pageable, wrong };

static Place place_of(const Runtime &r, const void *memory, size_t bytes) {
    const Allocation *a = memory_find(r.allocations, memory);
    if (a == nullptr)
        return memory_find(r.freed, memory) == nullptr ? Place::pageable : Place::wrong;
    if (memory_holding(r, memory, bytes) == nullptr) return Place::wrong;
    return a->device == HOST ? Place::pinned : Place::device;
}

static int device_of(const Runtime &r, const void *memory, size_t bytes) {
    const Allocation *a = memory_holding(r, memory, bytes);
    return a == nullptr ? HOST : a->device;
}

static bool kind_is_right(cudaMemcpyKind kind, Place destination, Place source) {
    bool to_device = destination == Place::device, from_device = source == Place::device;
    if (destination == Place::wrong || source == Place::wrong) return false;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

// The copy's name in messages and counts.
static const char *name_of(Place destination, Place source) {
    bool to_device = destination == Place::device, from_device = source == Place::device;
    if (to_device && from_device) return "cudaMemcpyAsync (device to device)";
    return to_device     ? "cudaMemcpyAsync (host to device)"
           : from_device ? "cudaMemcpyAsync (device to host)"
                         : "cudaMemcpyAsync (host to host)";
}

static Task copy_task(void *destination, const void *source, size_t bytes, bool read_now) {
    Task task;
    task.bytes = bytes;
    if (read_now) {
        const char *begin = static_cast<const char *>(source);
        auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
        task.work = [=] {
            memcpy(destination, staged->data(), bytes);
            return true;
        };
    } else {
        task.work = [=] {
            memcpy(destination, source, bytes);
            return true;
        };
    }
    return task;
}

static cudaError_t copy(Runtime &r, Lock &lock, void *destination, const void *source, size_t bytes,
                        cudaMemcpyKind kind, cudaStream_t stream) {
    if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    Place to = place_of(r, destination, bytes), from = place_of(r, source, bytes);
    if (!kind_is_right(kind, to, from)) return cudaErrorInvalidValue;
    bool pageable = to == Place::pageable || from == Place::pageable;
    if (pageable && stream->capture != nullptr) return capture_forbids_wait(r, stream);
    Task task = copy_task(destination, source, bytes, from == Place::pageable);
    task.what = name_of(to, from);
    task.device = to == Place::device ? device_of(r, destination, bytes) : stream->device;
    task.other = from == Place::device ? device_of(r, source, bytes) : HOST;
    stream_enqueue(r, lock, stream, std::move(task));
    if (to == Place::pageable) run_until(r, lock, [=] { return stream->queue.empty(); });
    return cudaSuccess;
}

static cudaError_t set(Runtime &r, Lock &lock, void *memory, int value, size_t bytes,
                       cudaStream_t stream) {
    if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const Allocation *a = memory_holding(r, memory, bytes);
    if (a == nullptr) return cudaErrorInvalidValue;
    Task task;
    task.what = "cudaMemsetAsync";
    task.device = stream->device;
    task.other = a->device;
    task.work = [=] {
        memset(memory, value, bytes);
        return true;
    };
    stream_enqueue(r, lock, stream, std::move(task));
    return cudaSuccess;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream) {
    return call([=](Runtime &r, Lock &lock) {
        return copy(r, lock, destination, source, bytes, kind, stream);
    });
}

cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t stream) {
    return call([=](Runtime &r, Lock &lock) {
        if (bytes > 0 && (device_of(r, destination, bytes) != destination_device ||
                          device_of(r, source, bytes) != source_device))
            return cudaErrorInvalidValue;
        return copy(r, lock, destination, source, bytes, cudaMemcpyDeviceToDevice, stream);
    });
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    return call([=](Runtime &r, Lock &lock) { return set(r, lock, memory, value, bytes, stream); });
}
