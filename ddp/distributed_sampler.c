/* distributed_sampler.c: pads or truncates the order to a multiple of the world size R; each rank
 * takes every R-th sample.
 *
 * The batches of all ranks have the same sizes, so every rank makes the same number of steps: in an
 * additional step a rank would wait for all-reduces that the other ranks never start.
 */
#include "ddp/distributed_sampler.h"

size_t distributed_count(size_t samples, int world, bool drop_last) {
    CHECK(world > 0, "a world of %d", world);
    size_t ranks = (size_t)world;
    return samples / ranks + (!drop_last && samples % ranks != 0);
}

size_t distributed_indices(size_t *order, size_t samples, int world, int rank, bool drop_last) {
    size_t count = distributed_count(samples, world, drop_last);
    size_t total = count * (size_t)world;
    // An order shorter than the world size repeats several times.
    for (size_t i = samples; i < total; i++) order[i] = order[i - samples];
    for (size_t i = 0; i < count; i++) order[i] = order[(size_t)rank + i * (size_t)world];
    return count;
}

static void layout_interleaved(Sampler *self, size_t epoch) {
    sampler_order(self, epoch, self->indices);
    size_t count =
        distributed_indices(self->indices, self->samples, self->world, self->rank, self->drop_last);
    size_t batch = self->global_batch / (size_t)self->world;
    for (size_t i = 0; i < self->batch_count; i++) {
        size_t left = count - self->start[i];
        size_t taken = left < batch ? left : batch;
        self->start[i + 1] = self->start[i] + taken;
        self->global[i] = taken * (size_t)self->world;
    }
}

Sampler *distributed_sampler(size_t samples, size_t global_batch, int world, int rank, bool shuffle,
                             bool drop_last, uint64_t seed, Error *err) {
    Sampler wanted;
    if (sampler_begin(&wanted, samples, global_batch, world, rank, shuffle, drop_last, seed, err) !=
        0)
        return NULL;
    wanted.layout = layout_interleaved;
    wanted.interleaved = true;
    if (global_batch % (size_t)world != 0)
        return error_null(
            err, STATUS_USAGE,
            "--global-batch %zu is not divisible by the world size %d: ranks would get unequal "
            "batches; use a multiple of %d or --sampler blocked",
            global_batch, world, world);
    size_t count = distributed_count(samples, world, drop_last);
    if (count == 0)
        return error_null(err, STATUS_USAGE,
                          "no batch is left: %zu samples do not give each of %d ranks one", samples,
                          world);
    size_t batch = global_batch / (size_t)world;
    wanted.batch_count = count / batch + (count % batch != 0);
    return sampler_create(&wanted);
}
