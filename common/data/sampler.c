/* sampler.c: the whole, blocked and evaluation layouts.
 *
 * A layout writes the epoch's order of all samples into `indices`, then moves this rank's indices
 * to the front, in place: an index only moves towards the front, so each is read before it is
 * overwritten. Only `indices` depends on the epoch: `start` and `global` follow from the sizes.
 *
 * The interleaved layout is in ddp/distributed_sampler.c.
 */
#include "common/data/sampler.h"

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/object.h"
#include "common/data/randperm.h"

int sampler_begin(Sampler *wanted, size_t samples, size_t global_batch, int world, int rank,
                  bool shuffle, bool drop_last, uint64_t seed, Error *err) {
    *wanted = (Sampler){.samples = samples,
                        .global_batch = global_batch,
                        .world = world,
                        .rank = rank,
                        .shuffle = shuffle,
                        .drop_last = drop_last,
                        .seed = seed};
    if (samples == 0)
        return error_set(err, STATUS_USAGE, "the data set is empty: there is nothing to sample");
    if (samples >= RANDPERM_LIMIT)
        return error_set(err, STATUS_USAGE, "%zu samples are too many: at most %d can be shuffled",
                         samples, RANDPERM_LIMIT - 1);
    if (global_batch == 0)
        return error_set(err, STATUS_USAGE, "--global-batch 0: a batch needs at least one sample");
    if (world < 1)
        return error_set(err, STATUS_USAGE, "world size %d: there must be at least one rank",
                         world);
    if (rank < 0 || rank >= world)
        return error_set(err, STATUS_USAGE,
                         "Invalid rank %d, rank should be in the interval [0, %d]", rank,
                         world - 1);
    return 0;
}

Sampler *sampler_create(const Sampler *wanted) {
    Sampler *sampler = object_open("sampler", sizeof *sampler);
    *sampler = *wanted;
    size_t room = wanted->samples + (size_t)wanted->world;
    sampler->indices = memory_zalloc(room * sizeof *sampler->indices);
    sampler->start = memory_zalloc((wanted->batch_count + 1) * sizeof *sampler->start);
    sampler->global = memory_zalloc(wanted->batch_count * sizeof *sampler->global);
    sampler_set_epoch(sampler, 0);
    return sampler;
}

void sampler_close(Sampler *sampler) {
    if (!sampler) return;
    object_check_open(sampler, "sampler_close");
    free(sampler->indices);
    free(sampler->start);
    free(sampler->global);
    object_close(sampler);
}

int sampler_drop_incomplete(Sampler *sampler, Error *err) {
    size_t last = sampler->batch_count - 1;
    if (sampler->global[last] == sampler->global_batch) return 0;
    if (last == 0)
        return error_set(err, STATUS_USAGE, "no batch is left: the only one has %zu of %zu samples",
                         sampler->global[last], sampler->global_batch);
    sampler->batch_count = last;
    return 0;
}

void sampler_set_epoch(Sampler *sampler, size_t epoch) {
    sampler->layout(sampler, epoch);
}

void sampler_order(const Sampler *sampler, size_t epoch, size_t *order) {
    if (sampler->shuffle) {
        randperm(sampler->samples, sampler->seed + epoch, order);
    } else {
        for (size_t i = 0; i < sampler->samples; i++) order[i] = i;
    }
}

void chunk_bounds(size_t count, size_t chunks, size_t i, size_t *begin, size_t *end) {
    CHECK(i < chunks, "chunk %zu of %zu", i, chunks);
    size_t length = count / chunks + (count % chunks != 0);
    *begin = i * length < count ? i * length : count;
    *end = count - *begin < length ? count : *begin + length;
}

static void layout_blocked(Sampler *self, size_t epoch) {
    sampler_order(self, epoch, self->indices);
    size_t filled = 0;
    for (size_t i = 0; i < self->batch_count; i++) {
        size_t first = i * self->global_batch; // of the global batch, in the epoch's order
        size_t left = self->samples - first;
        self->global[i] = left < self->global_batch ? left : self->global_batch;
        size_t begin, end;
        chunk_bounds(self->global[i], (size_t)self->world, (size_t)self->rank, &begin, &end);
        for (size_t row = begin; row < end; row++)
            self->indices[filled++] = self->indices[first + row];
        self->start[i + 1] = filled;
    }
}

Sampler *sampler_blocked(size_t samples, size_t global_batch, int world, int rank, bool shuffle,
                         bool drop_last, uint64_t seed, Error *err) {
    Sampler wanted;
    if (sampler_begin(&wanted, samples, global_batch, world, rank, shuffle, drop_last, seed, err) !=
        0)
        return NULL;
    wanted.layout = layout_blocked;
    wanted.batch_count = samples / global_batch + (!drop_last && samples % global_batch != 0);
    if (wanted.batch_count == 0)
        return error_null(
            err, STATUS_USAGE,
            "--global-batch %zu: no batch is left, the incomplete one of %zu sample%s is dropped",
            global_batch, samples, format_s(samples));
    return sampler_create(&wanted);
}

Sampler *sampler_whole(size_t samples, size_t global_batch, bool shuffle, bool drop_last,
                       uint64_t seed, Error *err) {
    return sampler_blocked(samples, global_batch, 1, 0, shuffle, drop_last, seed, err);
}

// The number of samples in batch i of a rank's chunk.
static size_t part_batch(const Sampler *self, int rank, size_t batch, size_t i) {
    size_t begin, end;
    chunk_bounds(self->samples, (size_t)self->world, (size_t)rank, &begin, &end);
    size_t first = i * batch;
    if (first >= end - begin) return 0;
    return end - begin - first < batch ? end - begin - first : batch;
}

static void layout_evaluation(Sampler *self, size_t epoch) {
    (void)epoch; // evaluation has the same order in every epoch
    size_t begin, end;
    chunk_bounds(self->samples, (size_t)self->world, (size_t)self->rank, &begin, &end);
    for (size_t row = begin; row < end; row++) self->indices[row - begin] = row;

    size_t batch = self->global_batch / (size_t)self->world;
    for (size_t i = 0; i < self->batch_count; i++) {
        self->start[i + 1] = self->start[i] + part_batch(self, self->rank, batch, i);
        self->global[i] = 0;
        for (int rank = 0; rank < self->world; rank++)
            self->global[i] += part_batch(self, rank, batch, i);
    }
}

Sampler *sampler_evaluation(size_t samples, size_t batch, int world, int rank) {
    CHECK(batch > 0, "an evaluation batch of 0 samples");
    CHECK(rank >= 0 && rank < world, "rank %d of %d", rank, world);
    if (samples > 0 && batch > samples) batch = samples;
    size_t begin, end;
    chunk_bounds(samples, (size_t)world, (size_t)rank, &begin, &end);
    Sampler wanted = {.samples = samples,
                      .global_batch = batch * (size_t)world,
                      .world = world,
                      .rank = rank,
                      .layout = layout_evaluation,
                      .batch_count = (end - begin) / batch + ((end - begin) % batch != 0)};
    return sampler_create(&wanted);
}
