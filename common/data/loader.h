/* loader.h: batches, prefetched by a thread.
 *
 * The loader fills a ring of host buffers with a sampler's batches, normalised and augmented, and
 * returns them in order. A batch is a pure function of the sampler and the data set; the thread
 * changes only when it is made. loader_create allocates all buffers.
 */
#ifndef COMMON_DATA_LOADER_H
#define COMMON_DATA_LOADER_H

#include "common/data/dataset.h"
#include "common/data/sampler.h"
#include "common/device/device.h"

typedef struct Batch {
    size_t count;        // samples in this batch, on this rank; may be 0
    size_t global_count; // on all ranks together
    const Dataset *set;  // the samples' data set, with their shapes
    float *samples;      // [count, c, h, w]; NULL for text. Valid until the next loader_next
    int64_t *tokens;     // [count, T] of text; otherwise NULL
    int64_t *labels;     // [count], dense: [count, h, w], text: [count, T], or NULL
    float *targets;      // [count, target_size], or NULL
} Batch;

typedef struct Loader Loader;

enum { LOADER_MAX_DEPTH = 1024 };
// The caller owns set, sampler and device, which must outlive the loader. augment is copied; it may
// be NULL. depth: batches to prefetch, at most LOADER_MAX_DEPTH; 2 hide the work, 0 starts no
// thread and makes batches on demand. Batches are in memory of device_host_alloc, from which
// device_upload is asynchronous.
Loader *loader_create(const Dataset *set, Sampler *sampler, const Augment *augment, size_t depth,
                      Device *device);
size_t loader_capacity(const Loader *loader); // samples in the largest batch
void loader_close(Loader *loader);
// Starts an epoch at its batch `first` (0, or the next batch of a resumed run).
void loader_start(Loader *loader, size_t epoch, size_t first);
// The next batch, or NULL after the epoch's last and before loader_start. Valid until the next
// call.
const Batch *loader_next(Loader *loader);

#endif
