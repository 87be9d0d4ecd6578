/* 01-own-samples.grade.c: known orders, of numbers that W divides, and others. */
#include "tutorials/10-sampler/exercises/01-own-samples.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_10_01;

enum { MOST = 40, STRANGER = 9999 };

// Sample numbers differ from their positions. The order ends with STRANGER, which is no sample.
static void make_order(size_t *order, size_t samples) {
    for (size_t i = 0; i < MOST; i++) order[i] = i < samples ? 100 + (i * 7) % samples : STRANGER;
}

// Explains why `got`, number i of the rank's samples, is not the expected sample.
static void explain(Grade *grade, const size_t *order, size_t samples, int world, int rank,
                    size_t i, size_t got) {
    const size_t ranks = (size_t)world, at = (size_t)rank + i * ranks;
    const size_t count = (samples + ranks - 1) / ranks;
    GRADE_EXPECT(grade, got >= 100,
                 "These are places in the order, not the samples that stand there.");
    GRADE_EXPECT(grade, got != STRANGER,
                 "With fewer samples than ranks the order has to begin again more than once. (%d "
                 "ranks, %zu samples)",
                 world, samples);
    GRADE_EXPECT(grade, at < samples || got != order[samples - 1],
                 "What fills up is the beginning of the order, and not its last sample.");
    GRADE_EXPECT(grade, at < samples || got != order[(size_t)rank % samples],
                 "What fills up is the beginning of the order, and not of this rank's share.");
    GRADE_EXPECT(grade, rank == 0 || i > 0 || got != order[0],
                 "Every rank takes the samples of rank 0: the shares begin at `rank`.");
    GRADE_EXPECT(grade, got != order[((size_t)rank * count + i) % samples],
                 "These are neighbours in the order; the ranks take turns.");
    grade_miss(grade, "%d ranks, %zu samples: number %zu of rank %d is %zu, and should be %zu.",
               world, samples, i, rank, got, order[at % samples]);
}

static size_t ask(Grade *grade, const size_t *order, size_t samples, int world, int rank,
                  size_t *own, size_t room) {
    size_t count = GRADE_CALL(grade, own_samples, order, samples, world, rank, own);
    grade_out(grade, own, room * sizeof *own);
    return count;
}

static void check(Grade *grade, size_t samples, int world) {
    size_t order[MOST], counts[8], *own = grade_fenced(grade, (MOST + 16) * sizeof *own);
    const size_t ranks = (size_t)world, wanted = (samples + ranks - 1) / ranks;
    make_order(order, samples);
    for (size_t i = 0; i < MOST + 16; i++) own[i] = STRANGER;
    for (int rank = 0; rank < world; rank++)
        counts[rank] = ask(grade, order, samples, world, rank, own, MOST + 16);
    for (int rank = 1; rank < world; rank++)
        GRADE_EXPECT(grade, counts[rank] == counts[0],
                     "The ranks have different numbers of samples: one with more waits for the "
                     "others forever. (%zu samples, %d ranks: %zu and %zu)",
                     samples, world, counts[0], counts[rank]);
    GRADE_EXPECT(grade, counts[0] >= wanted || samples / ranks != counts[0] || wanted == counts[0],
                 "Samples are lost at the end: fill up instead of cutting off.");
    GRADE_EXPECT(grade, counts[0] == wanted, "%zu samples for %d ranks are %zu each, not %zu.",
                 samples, world, wanted, counts[0]);
    for (size_t i = samples / ranks + 1; i < MOST + 16; i++)
        GRADE_EXPECT(grade, own[i] == STRANGER,
                     "own has room for samples / world + 1 = %zu, and number %zu was written.",
                     samples / ranks + 1, i);
    for (int rank = world - 1; rank >= 0; rank--) {
        ask(grade, order, samples, world, rank, own, MOST + 16);
        for (size_t i = 0; i < wanted; i++) {
            size_t at = (size_t)rank + i * ranks;
            if (own[i] != order[at % samples])
                explain(grade, order, samples, world, rank, i, own[i]);
        }
    }
}

static void large(Grade *grade) {
    enum { SAMPLES = 100003, WORLD = 2 };
    static size_t order[SAMPLES + 1], own[SAMPLES];
    for (size_t i = 0; i <= SAMPLES; i++) order[i] = SAMPLES - i;
    size_t count = ask(grade, order, SAMPLES, WORLD, 1, own, SAMPLES);
    GRADE_OUT(grade, order);
    GRADE_EXPECT(grade, count == 50002, "%d samples for 2 ranks are 50002 each, not %zu.", SAMPLES,
                 count);
    for (size_t i = 0; i < count; i++) {
        size_t wanted = SAMPLES - (1 + 2 * i) % SAMPLES;
        GRADE_EXPECT(grade, own[i] == wanted, "%d samples: number %zu of rank 1 is %zu, not %zu.",
                     SAMPLES, i, wanted, own[i]);
    }
    for (size_t i = 0; i <= SAMPLES; i++)
        GRADE_EXPECT(grade, order[i] == SAMPLES - i,
                     "The order, or memory behind it, was written: write only to own.");
}

static void even(Grade *grade) {
    check(grade, 12, 2);
    check(grade, 15, 3);
    check(grade, 15, 5);
    check(grade, 7, 1);
}

static void uneven(Grade *grade) {
    check(grade, 11, 2);
    check(grade, 10, 3);
    check(grade, 13, 5);
    check(grade, 8, 5);
    large(grade);
}

static void few(Grade *grade) {
    check(grade, 3, 5);
    check(grade, 2, 5);
    check(grade, 1, 5);
}

const Grader grader_10_01 = {"10-sampler/01-own-samples",
                             {{"shares of equal length", 4, NULL, even},
                              {"an order that is filled up", 4, "shares of equal length", uneven},
                              {"fewer samples than ranks", 2, "an order that is filled up", few}}};
