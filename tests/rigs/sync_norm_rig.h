/* sync_norm_rig.h: shared by the two tests of SyncBatchNorm: global batches divided among ranks in
 * rank order, and comparison with a tolerance.
 */
#ifndef TESTS_RIGS_SYNC_NORM_RIG_H
#define TESTS_RIGS_SYNC_NORM_RIG_H

#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/layers.h"

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) problem(outcome, "line %d: not so: %s", __LINE__, #condition); \
    } while (0)

// Asserts |got - want| <= tolerance * (1 + |want|) for all elements.
static inline void compare(Outcome *outcome, const float *got, const float *want, size_t count,
                           double tolerance, const char *what) {
    for (size_t i = 0; i < count; i++) {
        double a = (double)got[i], b = (double)want[i];
        if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
            problem(outcome, "%s, element %zu: %.9g, not %.9g", what, i, a, b);
    }
}

static inline Device *open_device(int rank) {
    Error err = {0};
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", rank);
    Device *device = device_open(name, &err);
    CHECK(device, "%s", err.message);
    return device;
}

// Division of a global batch: rank r has rows[(r + step) % world] rows at a step.
typedef struct Shares {
    int world;
    size_t rows[RANKS_MAX];
    size_t inner; // pixels per channel; 1: a matrix
} Shares;

static inline size_t rows_of(const Shares *s, int step, int rank) {
    return s->rows[(rank + step) % s->world];
}

static inline size_t rows_before(const Shares *s, int step, int rank) {
    size_t rows = 0;
    for (int r = 0; r < rank; r++) rows += rows_of(s, step, r);
    return rows;
}

static inline size_t all_rows(const Shares *s) {
    return rows_before(s, 0, s->world);
}

static inline void on_threads_and_processes(RankBody *body, int world, const void *argument) {
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++)
        if (mode == AS_THREADS || !UNDER_TSAN) play_ranks(mode, world, 60, body, argument, NULL);
}

#endif
