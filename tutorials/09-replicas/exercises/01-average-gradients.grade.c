/* 01-average-gradients.grade.c: against the mean that is known, on every rank; then frozen and
 * shared parameters, and the bytes.
 */
#include "tutorials/09-replicas/exercises/01-average-gradients.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_09_01;

enum { MOST_RANKS = 5, PARAMETERS = 4, MOST = 28 };

static const size_t ROWS[PARAMETERS] = {3, 1, 4, 2}, COLUMNS[PARAMETERS] = {5, 3, 7, 1};

typedef enum Kind { PLAIN, FROZEN, SHARED } Kind; // of parameter 1 (SHARED: with parameter 3)

typedef struct Scene {
    Kind kind;
    float gradients[MOST_RANKS][PARAMETERS][MOST];
    size_t calls[MOST_RANKS], bytes[MOST_RANKS]; // of the first of two steps
} Scene;

// Sums of powers of two: exact, also when divided by the number of ranks after adding.
static float number(int rank, int parameter, size_t i) {
    return (float)(1 << rank) + (float)(32 * (parameter + 1)) + (float)(256 * i);
}

static size_t count_of(int parameter) {
    return ROWS[parameter] * COLUMNS[parameter];
}

// A step with new gradients for the same parameters.
static void run_step(GradeRank *rank, Tensor *const *list, Tensor *tensors) {
    Scene *scene = rank->context;
    for (int k = 0; k < PARAMETERS; k++)
        for (size_t i = 0; i < count_of(k); i++)
            scene->gradients[rank->rank][k][i] = number(rank->rank, k, i);
    rank->status =
        STUDENT(rank->grade, average_gradients)(rank->group, list, PARAMETERS, &rank->err);
    for (int k = 0; k < PARAMETERS; k++)
        GRADE_EXPECT(rank->grade, tensors[k].requires_grad == (k != 1 || scene->kind != FROZEN),
                     "Parameter %d's requires_grad was changed: the next step would leave it out, "
                     "or train a frozen one.",
                     k);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    Tensor tensors[PARAMETERS];
    Tensor *list[PARAMETERS];
    for (int k = 0; k < PARAMETERS; k++) {
        float *gradient = scene->gradients[rank->rank][k];
        tensors[k] = tensor_make(NULL, DTYPE_F32, 2, (size_t[]){ROWS[k], COLUMNS[k]}, NULL);
        tensors[k].requires_grad = tensors[k].has_grad = true;
        tensors[k].grad = gradient;
        list[k] = &tensors[k];
    }
    if (scene->kind == FROZEN) {
        tensors[1].requires_grad = tensors[1].has_grad = false; // grad points to old numbers
    }
    if (scene->kind == SHARED) list[3] = list[1];
    run_step(rank, list, tensors);
    size_t calls = scene->calls[rank->rank] = watch_calls(rank->log);
    for (size_t i = 0; i < rank->log->count; i++)
        scene->bytes[rank->rank] += rank->log->events[i].bytes;
    if (rank->status != 0) return;
    run_step(rank, list, tensors);
    GRADE_EXPECT(rank->grade, rank->status != 0 || watch_calls(rank->log) == 2 * calls,
                 "The second step averaged other gradients than the first: something was kept from "
                 "one call to the next.");
}

// One number of one gradient on one rank: a sentence for each common mistake.
static void check_number(Grade *grade, const Scene *scene, int world, int rank, int k, size_t i) {
    float sum = 0, got = scene->gradients[rank][k][i];
    for (int r = 0; r < world; r++) sum += number(r, k, i);
    float scale = 1.0f / (float)world, mean = sum * scale;
    GRADE_EXPECT(grade, got != 0.0f,
                 "The gradients are 0 on every rank: all agree, and none learns.");
    GRADE_EXPECT(grade, world == 1 || got != sum,
                 "This is the sum of the gradients: every step is as many times too long as there "
                 "are ranks.");
    GRADE_EXPECT(grade, world == 1 || got != mean * scale,
                 "It was divided by the number of ranks twice: PG_AVG does that already.");
    GRADE_EXPECT(grade, world == 1 || got != number(rank, k, i) || k != PARAMETERS - 1 || i > 0,
                 "The last parameter was left out: its gradient still differs from rank to rank.");
    GRADE_EXPECT(grade,
                 world == 1 || got != number(rank, k, i) || i == 0 ||
                     scene->gradients[rank][k][0] == number(rank, k, 0),
                 "Only the first numbers of a gradient were averaged: it has "
                 "tensor_count(parameter).");
    GRADE_EXPECT(grade, rank == 0 || got != number(0, k, i),
                 "All ranks have rank 0's gradients: they are equal, and the other ranks' "
                 "gradients are lost.");
    GRADE_EXPECT(grade, got == mean || fabsf(got - mean) > 1e-5f * mean,
                 "The mean is right except for its last bits: PG_AVG adds all ranks and then "
                 "multiplies by 1 / W, once. To divide by W, or each rank before, rounds "
                 "differently.");
    GRADE_EXPECT(grade, got == mean,
                 "%d ranks: the mean of gradient %d at %zu is %g, and rank %d has %g.", world, k, i,
                 (double)mean, rank, (double)got);
}

static void check(Grade *grade, Scene *scene, int world, Kind kind) {
    *scene = (Scene){.kind = kind};
    grade_ranks(grade, world, run_rank, scene);
    GRADE_EXPECT(grade, scene->bytes[0] < 4 * 47 * sizeof(float),
                 "pg_all_reduce counts numbers, and was given the bytes of a gradient: four times "
                 "as many.");
    for (int rank = world - 1; rank >= 0; rank--)
        for (int k = 0; k < PARAMETERS; k++)
            for (size_t i = 0; i < count_of(k); i++) {
                if ((kind == FROZEN && k == 1) || (kind == SHARED && k == 3)) continue;
                check_number(grade, scene, world, rank, k, i);
            }
}

// More parameters than a fixed array may hold; the last one is the first.
static void run_large_model(GradeRank *rank) {
    enum { MANY = 1000 };
    static float gradients[2][MANY];
    static Tensor tensors[2][MANY];
    static Tensor *lists[2][MANY];
    Tensor **list = lists[rank->rank];
    for (int k = 0; k < MANY; k++) {
        float *gradient = &gradients[rank->rank][k];
        Tensor *tensor = list[k] = &tensors[rank->rank][k];
        *gradient = (float)rank->rank;
        *tensor = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){1}, NULL);
        tensor->requires_grad = tensor->has_grad = true;
        tensor->grad = gradient;
    }
    list[MANY - 1] = list[0];
    rank->status = STUDENT(rank->grade, average_gradients)(rank->group, list, MANY, &rank->err);
    size_t calls = watch_calls(rank->log);
    GRADE_EXPECT(rank->grade, calls == MANY - 1,
                 "Of %d parameters two are the same, so %d gradients are to be averaged, and not "
                 "%zu.",
                 MANY, MANY - 1, calls);
}

static void two_ranks(Grade *grade) {
    static Scene scene;
    check(grade, &scene, 2, PLAIN);
}

static void all_worlds(Grade *grade) {
    static Scene scene;
    check(grade, &scene, 1, PLAIN);
    check(grade, &scene, 3, PLAIN);
    check(grade, &scene, 5, PLAIN);
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

static void frozen(Grade *grade) {
    static Scene scene;
    check(grade, &scene, 3, FROZEN);
    GRADE_EXPECT(grade, scene.calls[0] <= PARAMETERS - 1,
                 "A frozen parameter has no gradient, and there is nothing to average. (%zu "
                 "collectives for 3 gradients)",
                 scene.calls[0]);
}

static void shared(Grade *grade) {
    static Scene scene;
    check(grade, &scene, 3, SHARED);
    const size_t needed = (15 + 3 + 28) * sizeof(float); // of three of them
    GRADE_EXPECT(grade, scene.bytes[0] <= needed,
                 "The shared parameter was sent twice: it is in the list twice. (%zu bytes, and "
                 "%zu are needed)",
                 scene.bytes[0], needed);
    grade_ranks(grade, 2, run_large_model, &(char){0});
}

const Grader grader_09_01 = {"09-replicas/01-average-gradients",
                             {{"the mean on two ranks", 3, NULL, two_ranks},
                              {"one, three and five ranks", 2, "the mean on two ranks", all_worlds},
                              {"a frozen parameter", 2, "the mean on two ranks", frozen},
                              {"a shared parameter", 3, "the mean on two ranks", shared}}};
