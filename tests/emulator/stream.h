/* stream.h: the functions of the emulator's streams and memory for its other files; nccl.cpp
 * includes no other header of the emulator.
 */
#ifndef TESTS_EMULATOR_STREAM_H
#define TESTS_EMULATOR_STREAM_H

#include <cstddef>
#include <functional>

#include <cuda_runtime_api.h>

namespace emulator {

// One piece of a stream's work. It is called in stream order, by any thread that executes work,
// with the emulator's lock held: it must not block and may not call cuda* functions. It returns
// whether it is finished. If not, it is called again later, after work of other streams: an
// operation that needs another process checks whether that process is ready, and returns. In a
// graph, each replay calls it anew after the previous replay's call has returned true.
using Work = std::function<bool()>;

// Puts work on the stream, or into the graph that the stream is recording. `what` (a string of
// static lifetime) names it in messages. The work may access the memory of the stream's device and
// of that device's peers. Returns the errors of cudaMemsetAsync.
cudaError_t stream_put(cudaStream_t stream, const char *what, Work work);

// The following functions take the lock, so they must not be called by work. stream_device returns
// the stream's device, or -1 if it is not a stream.
int stream_device(cudaStream_t stream);

// Whether calls on the stream are currently recorded into a graph.
bool stream_is_recording(cudaStream_t stream);

// Returns the device with an allocation that contains [memory, memory + bytes), or -1.
int memory_device(const void *memory, size_t bytes);

} // namespace emulator

#endif
