/* loader.c: a ring of batches between the loader's thread (producer) and the trainer (consumer).
 *
 * The ring has depth + 1 slots: the caller's batch and `depth` prefetched ones. Batch b of the
 * epoch is in slot b mod slots. Batches [given, made) are ready, and given - 1 is the caller's; the
 * thread makes batch `made` while made - given < depth, so it never writes a slot that is ready or
 * in use.
 *
 * A batch is filled outside the lock, with `busy` set. loader_start waits until `busy` is cleared
 * before it changes the sampler's arrays, which the thread reads. The waits need no deadline,
 * because the other thread only computes.
 */
#include "common/data/loader.h"

#include <pthread.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/object.h"

struct Loader {
    const Dataset *set;
    Device *device;
    Sampler *sampler;
    const Augment *augment; // &augment_copy, or NULL
    Augment augment_copy;
    size_t capacity; // samples in the largest batch
    size_t slots;    // depth + 1
    Batch *ring;     // [slots]
    size_t depth;    // batches made ahead; 0: no thread
    pthread_t thread;

    pthread_mutex_t lock; // protects the fields below
    pthread_cond_t wake;  // to the thread: a slot is free, or `closing` is set
    pthread_cond_t done;  // to the caller: a batch is ready
    size_t epoch, made, given, end;
    bool busy, closing;
};

static void fill_batch(const Loader *loader, size_t epoch, size_t number, Batch *batch) {
    CHECK(object_is_open(loader->sampler), "the loader's sampler was closed before it");
    const Sampler *sampler = loader->sampler;
    const Dataset *set = loader->set;
    const size_t *indices = sampler->indices + sampler->start[number];
    size_t size = dataset_sample_size(set), label_size = dataset_label_size(set);
    batch->count = sampler->start[number + 1] - sampler->start[number];
    batch->global_count = sampler->global[number];
    CHECK(batch->count <= loader->capacity, "batch %zu has %zu samples, room for %zu", number,
          batch->count, loader->capacity);
    for (size_t i = 0; i < batch->count; i++) {
        size_t index = indices[i];
        if (batch->tokens)
            dataset_sample_tokens(set, index, batch->tokens + i * size);
        else
            dataset_sample(set, index, loader->augment, epoch, batch->samples + i * size);
        if (batch->labels)
            dataset_sample_labels(set, index, loader->augment, epoch,
                                  batch->labels + i * label_size);
        if (batch->targets)
            memcpy(batch->targets + i * set->target_size, set->targets + index * set->target_size,
                   set->target_size * sizeof *batch->targets);
    }
}

static void *loader_run(void *argument) {
    Loader *loader = argument;
    pthread_mutex_lock(&loader->lock);
    while (!loader->closing) {
        if (loader->made == loader->end || loader->made - loader->given == loader->depth) {
            pthread_cond_wait(&loader->wake, &loader->lock);
            continue;
        }
        size_t epoch = loader->epoch, number = loader->made;
        loader->busy = true;
        pthread_mutex_unlock(&loader->lock);
        fill_batch(loader, epoch, number, &loader->ring[number % loader->slots]);
        pthread_mutex_lock(&loader->lock);
        loader->busy = false;
        loader->made++;
        pthread_cond_signal(&loader->done);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static void create_batch(Batch *batch, const Dataset *set, size_t capacity, Device *device) {
    size_t values = capacity * dataset_sample_size(set);
    size_t labels = capacity * dataset_label_size(set) * sizeof *batch->labels;
    size_t targets = capacity * set->target_size * sizeof *batch->targets;
    *batch = (Batch){.set = set,
                     .labels = dataset_has_labels(set) ? device_host_alloc(device, labels) : NULL,
                     .targets = set->targets ? device_host_alloc(device, targets) : NULL};
    if (set->tokens)
        batch->tokens = device_host_alloc(device, values * sizeof *batch->tokens);
    else
        batch->samples = device_host_alloc(device, values * sizeof *batch->samples);
}

Loader *loader_create(const Dataset *set, Sampler *sampler, const Augment *augment, size_t depth,
                      Device *device) {
    CHECK(depth <= LOADER_MAX_DEPTH, "loader_create: depth %zu", depth);
    CHECK(set->bytes || set->floats || set->tokens, "loader_create: the data set has no samples");
    Loader *loader = object_open("loader", sizeof *loader);
    loader->set = set;
    loader->device = device;
    loader->sampler = sampler;
    if (augment) {
        loader->augment_copy = *augment;
        loader->augment = &loader->augment_copy;
    }
    loader->depth = depth;
    loader->slots = depth + 1;
    for (size_t i = 0; i < sampler->batch_count; i++) {
        size_t count = sampler->start[i + 1] - sampler->start[i];
        if (count > loader->capacity) loader->capacity = count;
    }
    loader->ring = memory_zalloc(loader->slots * sizeof *loader->ring);
    for (size_t i = 0; i < loader->slots; i++)
        create_batch(&loader->ring[i], set, loader->capacity, device);

    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->wake, NULL);
    pthread_cond_init(&loader->done, NULL);
    // If no thread can be created, batches are made on demand.
    if (depth > 0 && pthread_create(&loader->thread, NULL, loader_run, loader) != 0)
        loader->depth = 0;
    return loader;
}

void loader_close(Loader *loader) {
    if (!loader) return;
    object_check_open(loader, "loader_close");
    if (loader->depth > 0) {
        pthread_mutex_lock(&loader->lock);
        loader->closing = true;
        pthread_cond_signal(&loader->wake);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->wake);
    pthread_mutex_destroy(&loader->lock);
    for (size_t i = 0; i < loader->slots; i++) {
        device_host_free(loader->device, loader->ring[i].samples);
        device_host_free(loader->device, loader->ring[i].tokens);
        device_host_free(loader->device, loader->ring[i].labels);
        device_host_free(loader->device, loader->ring[i].targets);
    }
    free(loader->ring);
    object_close(loader);
}

size_t loader_capacity(const Loader *loader) {
    return loader->capacity;
}

void loader_start(Loader *loader, size_t epoch, size_t first) {
    CHECK(object_is_open(loader->sampler), "the loader's sampler was closed before it");
    pthread_mutex_lock(&loader->lock);
    // Ends the previous epoch: the batch in progress is its last one, and is discarded.
    loader->end = loader->made + loader->busy;
    while (loader->busy) pthread_cond_wait(&loader->done, &loader->lock);
    sampler_set_epoch(loader->sampler, epoch);
    size_t count = loader->sampler->batch_count;
    loader->epoch = epoch;
    loader->end = count;
    loader->made = loader->given = first < count ? first : count;
    pthread_cond_signal(&loader->wake);
    pthread_mutex_unlock(&loader->lock);
}

const Batch *loader_next(Loader *loader) {
    pthread_mutex_lock(&loader->lock);
    Batch *batch = NULL;
    if (loader->given < loader->end) {
        batch = &loader->ring[loader->given % loader->slots];
        if (loader->depth == 0) fill_batch(loader, loader->epoch, loader->made++, batch);
        while (loader->made == loader->given) pthread_cond_wait(&loader->done, &loader->lock);
        loader->given++;
        pthread_cond_signal(&loader->wake);
    }
    pthread_mutex_unlock(&loader->lock);
    return batch;
}
