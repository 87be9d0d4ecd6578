/* loader.h: batches, made ready one or more steps ahead by a thread of its own.
 *
 * The loader walks a sampler's batches, normalises and augments into a ring of host buffers, and
 * hands them out in order. What a batch holds is a pure function of the sampler and the data set:
 * the thread changes when a batch is made, never what it holds. After the first batches it
 * allocates nothing.
 */
#ifndef COMMON_DATA_LOADER_H
#define COMMON_DATA_LOADER_H

#include "common/data/dataset.h"
#include "common/data/sampler.h"
#include "common/device/device.h"

typedef struct Batch {
    size_t count;        // samples in this batch, on this rank; may be 0
    size_t global_count; // in all ranks together
    const Dataset *set;  // where the samples are from; has their shapes
    float *samples;  // [count, c, h, w], or NULL; the loader's memory until the next loader_next
    int64_t *tokens; // [count, T], of text, which has no samples; otherwise NULL
    int64_t *labels; // [count], dense: [count, h, w], text: [count, T], or NULL
    float *targets;  // [count, target_size], or NULL
} Batch;

typedef struct Loader Loader;

// Set, sampler and device stay the caller's, and must outlive the loader. augment may be NULL.
// depth is how many batches are made ahead: 2 are enough to hide the work, and with 0 there is no
// thread and batches are made on demand. The batches lie in memory from device_host_alloc,
// from which device_upload copies without keeping the host waiting.
Loader *loader_create(const Dataset *set, Sampler *sampler, const Augment *augment, size_t depth,
                      Device *device);
size_t loader_capacity(const Loader *loader); // samples in the largest batch
void loader_close(Loader *loader);
// Starts an epoch at its batch number `first` (0, or where a resumed run stopped).
void loader_start(Loader *loader, size_t epoch, size_t first);
// The next batch, or NULL after the epoch's last. Valid until the next call.
const Batch *loader_next(Loader *loader);

#endif
