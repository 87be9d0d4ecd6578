/* stream.h: what the emulator's other files need of its streams and its memory. The only header
 * that nccl.cpp includes of it.
 */
#ifndef TESTS_EMULATOR_STREAM_H
#define TESTS_EMULATOR_STREAM_H

#include <cstddef>
#include <functional>

#include <cuda_runtime_api.h>

namespace emulator {

// One piece of a stream's work. It is called when its turn has come, by whatever thread happens to
// carry out work, with the emulator's lock held: it must not wait for anything, and calls no cuda*
// function. It returns whether it is finished. If not, it is called again a little later, while
// other streams go on: so an operation that needs another process looks whether that process is
// ready, and returns. When it is part of a graph it is called anew, from the start, in each replay
// after it has returned true.
using Work = std::function<bool()>;

// Puts work on the stream, or into the graph that the stream is recording. `what` (a string that
// lives as long as the program) names it in messages. The work may touch the memory of the stream's
// device and of that device's peers. Errors are those of cudaMemsetAsync.
cudaError_t stream_put(cudaStream_t stream, const char *what, Work work);

// These take the lock: they are not for use inside of work.
// The device that the stream belongs to; -1 for a stream that is none.
int stream_device(cudaStream_t stream);

// Whether what the stream is asked for is recorded into a graph at present.
bool stream_is_recording(cudaStream_t stream);

// The device on which [memory, memory + bytes) lies inside one allocation; -1: it does not.
int memory_device(const void *memory, size_t bytes);

} // namespace emulator

#endif
