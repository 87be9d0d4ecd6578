/* 02-unused-gradients.grade.c: parameters that all ranks, some ranks and no rank have used. */
#include "tutorials/19-uneven/exercises/02-unused-gradients.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_19_02;

enum { MOST_RANKS = 5, PARAMETERS = 5, MOST = 6, OLD = 8192 };

static const size_t COUNTS[PARAMETERS] = {2, 3, 4, 5, MOST};
// Parameter 0 is used by all ranks, 1 by rank 0, 2 by the last one, 3 by none, 4 by all but rank 0.

typedef struct Scene {
    bool everybody; // all ranks use all parameters
    float gradients[MOST_RANKS][PARAMETERS][MOST];
    bool has_grad[MOST_RANKS][PARAMETERS];
    size_t calls[MOST_RANKS], reduced[MOST_RANKS]; // collectives; bytes of PG_F32
} Scene;

static bool uses(const Scene *s, int rank, int world, int k) {
    if (s->everybody || k == 0) return true;
    if (k == 1) return rank == 0;
    if (k == 2) return rank == world - 1;
    return k == 4 && rank != 0;
}

static int users(const Scene *s, int world, int k) {
    int count = 0;
    for (int r = 0; r < world; r++) count += uses(s, r, world, k);
    return count;
}

static float number(int rank, int k, size_t i) {
    return (float)(1 << rank) + (float)(32 * (k + 1)) + (float)(256 * i);
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    Tensor tensors[PARAMETERS];
    Tensor *list[PARAMETERS];
    for (int k = 0; k < PARAMETERS; k++) {
        tensors[k] = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){COUNTS[k]}, NULL);
        tensors[k].requires_grad = true;
        tensors[k].has_grad = uses(s, r, rank->world, k);
        tensors[k].grad = grade_fenced(rank->grade, COUNTS[k] * sizeof(float));
        for (size_t i = 0; i < COUNTS[k]; i++)
            tensors[k].grad[i] = tensors[k].has_grad ? number(r, k, i) : (float)(OLD + r);
        list[k] = &tensors[k];
    }
    rank->status = STUDENT(rank->grade, average_used)(rank->group, list, PARAMETERS, &rank->err);
    for (int k = 0; k < PARAMETERS; k++) {
        memcpy(s->gradients[r][k], tensors[k].grad, COUNTS[k] * sizeof(float));
        s->has_grad[r][k] = tensors[k].has_grad;
    }
    s->calls[r] = watch_calls(rank->log);
    for (size_t e = 0; e < rank->log->count; e++)
        if (rank->log->events[e].collective.type == PG_F32)
            s->reduced[r] += rank->log->events[e].bytes;
}

static void check_number(Grade *grade, const Scene *s, int world, int r, int k, size_t i) {
    float sum = 0, old = 0, got = s->gradients[r][k][i];
    int count = users(s, world, k);
    for (int o = 0; o < world; o++) {
        sum += uses(s, o, world, k) ? number(o, k, i) : 0;
        old += uses(s, o, world, k) ? 0 : (float)(OLD + o);
    }
    float mean = sum * (1.0f / (float)world);
    GRADE_EXPECT(grade, old == 0 || fabsf(got - (sum + old) / (float)world) > 0.01f * mean,
                 "The old numbers of a rank that has not used parameter %d are in its mean: such a "
                 "rank contributes zeros.",
                 k);
    GRADE_EXPECT(grade, count == world || fabsf(got - sum / (float)count) > 1e-4f * mean,
                 "The gradient of parameter %d was divided by its %d users; the mean is that of "
                 "all %d ranks, of which the others have zeros.",
                 k, count, world);
    GRADE_EXPECT(grade, world == 1 || fabsf(got - sum) > 1e-4f * mean,
                 "This is the sum of the gradients; their mean over all ranks is wanted.");
    GRADE_EXPECT(grade, world == 1 || uses(s, r, world, k) || got != (float)(OLD + r),
                 "Rank %d has not used parameter %d, and another rank has: it must take part in "
                 "that reduction, and get its result.",
                 r, k);
    GRADE_EXPECT(grade, got == mean || fabsf(got - mean) > 1e-5f * mean,
                 "The mean is right except for its last bits: PG_AVG multiplies the sum by 1 / W.");
    GRADE_EXPECT(grade, got == mean,
                 "%d ranks: the mean of parameter %d at %zu is %g, rank %d has %g.", world, k, i,
                 (double)mean, r, (double)got);
}

static void check_unused(Grade *grade, const Scene *s, int r, int k) {
    for (size_t i = 0; i < COUNTS[k]; i++) {
        GRADE_EXPECT(grade, s->gradients[r][k][i] != 0,
                     "No rank has used parameter %d, and its gradient became 0: weight decay and "
                     "momentum would now change the parameter.",
                     k);
        GRADE_EXPECT(grade, s->gradients[r][k][i] == (float)(OLD + r),
                     "No rank has used parameter %d, and its gradient was changed.", k);
    }
    GRADE_EXPECT(grade, !s->has_grad[r][k],
                 "No rank has used parameter %d, and has_grad became true: the optimizer would "
                 "step it with old numbers.",
                 k);
}

static void check(Grade *grade, Scene *s, int world) {
    grade_ranks(grade, world, run_rank, s);
    size_t used = 0, bytes = 0;
    for (int k = 0; k < PARAMETERS; k++)
        if (users(s, world, k) > 0) used++, bytes += COUNTS[k] * sizeof(float);
    GRADE_EXPECT(grade, s->reduced[0] == 0 || s->reduced[0] >= bytes,
                 "Only %zu bytes of gradients were reduced, though some rank has used parameters "
                 "of %zu bytes: a gradient of a single rank must be reduced, too.",
                 s->reduced[0], bytes);
    for (int r = 0; r < world; r++)
        for (int k = 0; k < PARAMETERS; k++) {
            if (users(s, world, k) == 0) {
                check_unused(grade, s, r, k);
                continue;
            }
            for (size_t i = 0; i < COUNTS[k]; i++) check_number(grade, s, world, r, k, i);
            GRADE_EXPECT(grade, s->has_grad[r][k],
                         "Rank %d has the mean of parameter %d, and has_grad is false: its "
                         "optimizer skips the parameter, the others step it, and the replicas "
                         "diverge.",
                         r, k);
        }
    GRADE_EXPECT(
        grade, s->reduced[0] <= bytes,
        "%zu bytes of gradients were sent, though ranks have used parameters of only %zu bytes.",
        s->reduced[0], bytes);
    GRADE_EXPECT(
        grade, world == 1 || s->calls[0] != used,
        "%zu collectives for %zu gradients: no rank has asked which parameters the others have "
        "used, so ranks that have used different parameters call different collectives.",
        s->calls[0], used);
    GRADE_EXPECT(grade, world == 1 || s->calls[0] == used + 1,
                 "%zu collectives for %zu gradients: one collective asks for all parameters "
                 "together, and each gradient is one more.",
                 s->calls[0], used);
}

static void everybody(Grade *grade) {
    Scene one = {.everybody = true}, two = one, three = one;
    check(grade, &one, 1);
    check(grade, &two, 2);
    check(grade, &three, 3);
}

static void some(Grade *grade) {
    Scene two = {0}, three = {0}, five = {0};
    check(grade, &two, 2);
    check(grade, &three, 3);
    check(grade, &five, 5);
}

static void alone(Grade *grade) {
    Scene s = {0};
    check(grade, &s, 1);
}

// Every second parameter of many is used, by one rank of two.
static void run_large_model(GradeRank *rank) {
    enum { MANY = 3000 };
    static float gradients[MANY];
    static Tensor tensors[MANY];
    static Tensor *list[MANY];
    for (int k = 0; k < MANY; k++) {
        tensors[k] = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){1}, NULL);
        tensors[k].requires_grad = true;
        tensors[k].has_grad = k % 4 == 2 * rank->rank;
        tensors[k].grad = &gradients[k];
        gradients[k] = 2;
        list[k] = &tensors[k];
    }
    rank->status = STUDENT(rank->grade, average_used)(rank->group, list, MANY, &rank->err);
    for (int k = 0; rank->status == 0 && k < MANY; k++)
        GRADE_EXPECT(rank->grade, gradients[k] == (k % 2 ? 2.0f : 1.0f),
                     "With %d parameters, gradient %d is %g and should be %g: the number of "
                     "parameters has no limit.",
                     MANY, k, (double)gradients[k], k % 2 ? 2.0 : 1.0);
}

static void large(Grade *grade) {
    grade_ranks(grade, 2, run_large_model, &(char){0});
}

static void broken(Grade *grade) {
    Scene s = {0};
    grade_broken_ranks(grade, 2, run_rank, &s);
}

const Grader grader_19_02 = {"19-uneven/02-unused-gradients",
                             {{"all parameters are used", 2, NULL, everybody},
                              {"by some ranks, or by none", 4, "all parameters are used", some},
                              {"one rank", 1, "all parameters are used", alone},
                              {"3000 parameters", 2, "by some ranks, or by none", large},
                              {"a lost connection", 1, "by some ranks, or by none", broken}}};
