/* 02-whole-unit.grade.c: two units that are whole in turn, on several ranks, for several steps. */
#include "tutorials/21-gather-compute-free/exercises/02-whole-unit.h"

#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_21_02;

enum { UNITS = 2, SHARE = 17, MOST_RANKS = 5, STEPS = 2, OLD_BYTES = 4 * SHARE * MOST_RANKS };
static const size_t SHARES[UNITS] = {SHARE, 6};

typedef struct Seen { // observations of a rank
    float gradient[UNITS][SHARE];
    size_t weights_wrong, bytes[UNITS][4]; // in each unit: in forward, after; in backward, after
    bool whole[UNITS][4], no_weights, not_zero;
    size_t gathers, scatters, calls;
} Seen;

typedef struct Scene {
    int steps;
    Seen ranks[MOST_RANKS];
} Scene;

static float weight_of(int unit, size_t i, int step) {
    return (float)(1000 * (unit + 1) + (int)i + 500 * step);
}

// No rank's own number equals the mean of all.
static float gradient_of(int rank, int unit, size_t i, int step) {
    return (float)(15 * ((1 << rank) * (int)(i % 5 + 1) + 7 * step + unit));
}

static void note(Seen *seen, const WholeUnit *unit, int u, int moment, size_t before) {
    seen->bytes[u][moment] = unit->device->bytes - before;
    seen->whole[u][moment] = unit->weights != NULL || unit->gradients != NULL;
}

// Fills the memory that is allocated next with numbers.
static void spoil(Device *device) {
    float *old = device_alloc(device, OLD_BYTES);
    for (size_t i = 0; i < OLD_BYTES / sizeof *old; i++) old[i] = 3000;
    device_free(device, old, OLD_BYTES);
}

static void forward(GradeRank *rank, Seen *seen, WholeUnit *unit, int u, int step) {
    const size_t before = unit->device->bytes, all = SHARES[u] * (size_t)rank->world;
    rank->status |= STUDENT(rank->grade, before_forward)(unit, rank->group, &rank->err);
    if (rank->status != 0) return;
    note(seen, unit, u, 0, before);
    // In the rank, before the next allocation: an overflow of the heap may abort there.
    GRADE_EXPECT(rank->grade, seen->bytes[u][0] >= all * sizeof(float),
                 "There is no room for all parts: of a unit with parts of %zu floats on %d ranks "
                 "%zu bytes were allocated, and %zu are needed.",
                 SHARES[u], rank->world, seen->bytes[u][0], all * sizeof(float));
    for (size_t i = 0; unit->weights && i < all; i++)
        seen->weights_wrong += unit->weights[i] != weight_of(u, i, step);
    STUDENT(rank->grade, after_forward)(unit, rank->group);
    note(seen, unit, u, 1, before);
}

static void backward(GradeRank *rank, Seen *seen, WholeUnit *unit, int u, int step) {
    const size_t before = unit->device->bytes, all = SHARES[u] * (size_t)rank->world;
    spoil(unit->device);
    rank->status |= STUDENT(rank->grade, before_backward)(unit, rank->group, &rank->err);
    if (rank->status != 0) return;
    note(seen, unit, u, 2, before);
    if (!unit->weights || !unit->gradients) {
        seen->no_weights = true;
        rank->status |= STUDENT(rank->grade, after_backward)(unit, rank->group, &rank->err);
        return;
    }
    for (size_t i = 0; i < all; i++) {
        seen->weights_wrong += unit->weights[i] != weight_of(u, i, step);
        seen->not_zero |= unit->gradients[i] != 0;
        unit->gradients[i] += gradient_of(rank->rank, u, i, step);
    }
    rank->status |= STUDENT(rank->grade, after_backward)(unit, rank->group, &rank->err);
    note(seen, unit, u, 3, before);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    Seen *seen = &scene->ranks[rank->rank];
    Error err = {0};
    float parts[UNITS][SHARE];
    WholeUnit units[UNITS];
    Device *device = device_open("cpu:0", &err);
    for (int u = 0; u < UNITS; u++)
        units[u] = (WholeUnit){device, SHARES[u], parts[u], seen->gradient[u], NULL, NULL};
    for (int step = 0; step < scene->steps && rank->status == 0; step++) {
        for (int u = 0; u < UNITS; u++)
            for (size_t i = 0; i < SHARES[u]; i++)
                parts[u][i] = weight_of(u, (size_t)rank->rank * SHARES[u] + i, step);
        for (int u = 0; u < UNITS && rank->status == 0; u++)
            forward(rank, seen, &units[u], u, step);
        for (int u = UNITS; u-- > 0 && rank->status == 0;) backward(rank, seen, &units[u], u, step);
    }
    seen->gathers = watch_count(rank->log, PG_ALL_GATHER);
    seen->scatters = watch_count(rank->log, PG_REDUCE_SCATTER);
    seen->calls = watch_calls(rank->log);
}

static void check_memory(Grade *grade, const Seen *seen, int world) {
    for (int u = 0; u < UNITS; u++) {
        const size_t whole = SHARES[u] * (size_t)world * sizeof(float);
        GRADE_EXPECT(grade, seen->bytes[u][0] == whole,
                     "In forward a unit has %zu bytes, and %zu are needed.", seen->bytes[u][0],
                     whole);
        GRADE_EXPECT(grade, seen->bytes[u][1] == 0,
                     "%zu bytes are still there after forward: the next units need them.",
                     seen->bytes[u][1]);
        GRADE_EXPECT(
            grade, !seen->whole[u][1],
            "After forward weights still points to memory that was freed: set it to NULL.");
    }
}

static void check_backward(Grade *grade, const Seen *seen, int world) {
    GRADE_EXPECT(grade, !seen->no_weights,
                 "In backward there are no weights: they were freed after forward, and have to be "
                 "gathered again; and the gradients need memory.");
    GRADE_EXPECT(grade, !seen->not_zero,
                 "The gradients do not begin as zeros: device_alloc returns memory with old "
                 "contents, and backward adds.");
    for (int u = 0; u < UNITS; u++) {
        const size_t whole = SHARES[u] * (size_t)world * sizeof(float);
        GRADE_EXPECT(grade, seen->bytes[u][2] == 2 * whole,
                     "In backward a unit has %zu bytes, and %zu are needed.", seen->bytes[u][2],
                     2 * whole);
        GRADE_EXPECT(grade, seen->bytes[u][3] == 0,
                     "%zu bytes are still there after backward: weights and gradients are freed.",
                     seen->bytes[u][3]);
        GRADE_EXPECT(grade, !seen->whole[u][3],
                     "After backward a pointer is still there to memory that was freed: set both "
                     "to NULL.");
    }
}

static void check_gradient(Grade *grade, const Seen *seen, int world, int rank, int last_step) {
    for (int u = 0; u < UNITS; u++)
        for (size_t i = 0; i < SHARES[u]; i++) {
            const size_t at = (size_t)rank * SHARES[u] + i;
            const float got = seen->gradient[u][i];
            float sum = 0;
            for (int r = 0; r < world; r++) sum += gradient_of(r, u, at, last_step);
            const float mean = sum * (1.0f / (float)world);
            GRADE_EXPECT(grade, got == mean || got != sum,
                         "The gradient is the sum of the ranks', and their mean is wanted.");
            GRADE_EXPECT(grade, got == mean || got != gradient_of(rank, u, at, last_step),
                         "A rank has the gradients of its own rows only: the gradients of the "
                         "other ranks' rows are missing.");
            GRADE_EXPECT(
                grade, got == mean,
                "%d ranks: the gradient of number %zu of rank %d's part is %g, and not %g.", world,
                i, rank, (double)mean, (double)got);
        }
}

static void check(Grade *grade, int world, int steps) {
    Scene scene = {.steps = steps};
    grade_ranks(grade, world, run_rank, &scene);
    for (int rank = 0; rank < world; rank++) {
        const Seen *seen = &scene.ranks[rank];
        check_memory(grade, seen, world);
        check_backward(grade, seen, world);
        GRADE_EXPECT(
            grade, seen->weights_wrong == 0,
            "%zu weights of a whole unit differ from the ranks' parts in the order of the ranks.",
            seen->weights_wrong);
        check_gradient(grade, seen, world, rank, steps - 1);
    }
}

static void one_rank(Grade *grade) {
    check(grade, 1, 1);
}

static void several_ranks(Grade *grade) {
    check(grade, 2, 1);
    check(grade, 3, 1);
    check(grade, 5, 1);
}

static void several_steps(Grade *grade) {
    check(grade, 3, STEPS);
}

static void three_collectives(Grade *grade) {
    Scene scene = {.steps = 1};
    grade_ranks(grade, 3, run_rank, &scene);
    const Seen *seen = &scene.ranks[0];
    GRADE_EXPECT(grade, seen->scatters == UNITS,
                 "An all-reduce brings every part's mean to every rank, and this rank uses one: a "
                 "reduce-scatter is enough.");
    GRADE_EXPECT(grade, seen->gathers == 2 * UNITS && seen->calls == 3 * UNITS,
                 "A unit needs two all-gathers and a reduce-scatter. (%zu calls)",
                 seen->calls / UNITS);
    grade_broken_ranks(grade, 3, run_rank, &scene);
}

const Grader grader_21_02 = {
    "21-gather-compute-free/02-whole-unit",
    {{"one rank", 2, NULL, one_rank},
     {"two, three and five ranks", 3, "one rank", several_ranks},
     {"several steps", 2, "two, three and five ranks", several_steps},
     {"three collectives", 3, "two, three and five ranks", three_collectives}}};
