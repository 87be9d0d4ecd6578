/* 02-clip-gradients.grade.c: the mean gradient is (3, 4, 12), whose length is 13. */
#include "tutorials/18-accumulate-and-clip/exercises/02-clip-gradients.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_18_02;

enum { MOST_RANKS = 5, PARAMETERS = 3, LIST = 4, COUNT = 4, OLD = 84 };

static const float MEANS[PARAMETERS] = {3, 4, 12}; // the last number of each; the others are 0
static const size_t COUNTS[PARAMETERS] = {2, COUNT, 3};

typedef struct Scene {
    double max_norm;
    bool frozen,
        shared; // parameter 1 is frozen; parameter 1 is in the list again, as its last entry
    float gradients[MOST_RANKS][PARAMETERS][COUNT];
    double norm[MOST_RANKS];
    size_t bytes[MOST_RANKS];
} Scene;

// Rank r's gradients: (r + 1) / (1 + 2 + ... + W) of W times the means.
static float own(int rank, int world, int k) {
    return MEANS[k] * (float)world * (float)(rank + 1) / ((float)(world * (world + 1)) / 2.0f);
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    Tensor tensors[PARAMETERS];
    Tensor *list[LIST];
    for (int k = 0; k < PARAMETERS; k++) {
        float *gradient = grade_fenced(rank->grade, COUNTS[k] * sizeof *gradient);
        gradient[COUNTS[k] - 1] = own(r, rank->world, k);
        tensors[k] = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){COUNTS[k]}, NULL);
        tensors[k].requires_grad = !(s->frozen && k == 1);
        tensors[k].has_grad = true; // a frozen parameter keeps its old gradient
        tensors[k].grad = gradient;
        list[k] = &tensors[k];
    }
    if (s->frozen) tensors[1].grad[COUNT - 1] = OLD; // from before it was frozen
    list[LIST - 1] = list[1];
    rank->status = STUDENT(rank->grade, clip_gradients)(
        rank->group, list, s->shared ? LIST : PARAMETERS, s->max_norm, &s->norm[r], &rank->err);
    for (int k = 0; k < PARAMETERS; k++)
        memcpy(s->gradients[r][k], tensors[k].grad, tensor_bytes(&tensors[k]));
    for (size_t i = 0; i < rank->log->count; i++) s->bytes[r] += rank->log->events[i].bytes;
}

static bool is(double got, double wanted) {
    return fabs(got - wanted) < 1e-4 * (1 + fabs(wanted));
}

static void check_norm(Grade *grade, const Scene *s, int world, int r, double norm) {
    double got = s->norm[r], root = sqrt((double)world);
    double own_norm = norm * (double)own(r, world, 2) / (double)MEANS[2];
    size_t bytes = (COUNTS[0] + (s->frozen ? 0 : COUNTS[1]) + COUNTS[2]) * sizeof(float);
    GRADE_EXPECT(grade, s->bytes[r] == 0 || s->bytes[r] >= bytes || is(got, norm),
                 "%zu bytes were sent, and the gradients have %zu: each parameter has a count of "
                 "its own.",
                 s->bytes[r], bytes);
    GRADE_EXPECT(grade, world == 1 || !is(got, own_norm) || is(own_norm, norm),
                 "This is the length of the rank's own gradients. Clip after the reduction: the "
                 "ranks' own lengths differ, and so would their scales.");
    GRADE_EXPECT(grade, world == 1 || s->bytes[r] != bytes || !is(got, norm * world),
                 "This is the length of the ranks' gradients added up; their mean is wanted.");
    GRADE_EXPECT(grade, world == 1 || (!is(got, norm * world) && !is(got, norm * root)),
                 "The length was reduced once more: the gradients were averaged already, and "
                 "all ranks have the same length.");
    GRADE_EXPECT(grade, !is(got, norm * norm),
                 "This is the sum of the squares; the length is its root.");
    GRADE_EXPECT(grade, !s->shared || !is(got, sqrt(norm * norm + 16)),
                 "The shared parameter was counted twice: it is in the list twice.");
    GRADE_EXPECT(grade, !s->frozen || got < 80,
                 "The frozen parameter was counted, though its gradient is outdated.");
    GRADE_EXPECT(grade, world == 1 || !is(got, norm) || s->bytes[r] <= bytes,
                 "%zu bytes were sent, and the gradients have %zu: nothing else is needed, "
                 "and a frozen or shared parameter is not sent once more.",
                 s->bytes[r], bytes);
    GRADE_EXPECT(grade, is(got, norm), "%d ranks: the length is %g, and rank %d says %g.", world,
                 norm, r, got);
}

static void check_gradients(Grade *grade, const Scene *s, int world, int r, double scale) {
    for (int k = 0; k < PARAMETERS; k++) {
        double got = (double)s->gradients[r][k][COUNTS[k] - 1], mean = (double)MEANS[k];
        GRADE_EXPECT(grade, !s->frozen || k != 1 || got == OLD,
                     "The frozen parameter's gradient was changed; it must stay unchanged.");
        if (s->frozen && k == 1) continue;
        GRADE_EXPECT(grade, !s->shared || k != 1 || !is(got, mean * scale * scale),
                     "The shared parameter was shortened twice.");
        GRADE_EXPECT(grade, is(got, mean * scale),
                     "%d ranks: gradient %d is %g after clipping, and rank %d has %g.", world, k,
                     mean * scale, r, got);
    }
}

// Every rank's gradients must be the means times `scale`, and the norm must be the given one.
static void check(Grade *grade, Scene *s, int world, double norm, double scale) {
    grade_ranks(grade, world, run_rank, s);
    for (int r = 0; r < world; r++) {
        double last = (double)s->gradients[r][2][COUNTS[2] - 1] / (double)MEANS[2];
        check_norm(grade, s, world, r, norm);
        GRADE_EXPECT(grade, norm > s->max_norm || !is(last, s->max_norm / norm),
                     "Gradients that were short enough were made longer: clipping only shortens.");
        GRADE_EXPECT(grade, scale > 0.9 || !is(last, 1),
                     "The length is over the limit, and the gradients were not shortened.");
        check_gradients(grade, s, world, r, scale);
    }
}

// One number whose square is 2^24, and many whose squares a float's sum of that size loses; in more
// parameters than a fixed array may hold.
static void run_long(GradeRank *rank) {
    enum { MANY = 1000, EACH = 101, LONG = MANY * EACH };
    static float gradient[LONG];
    static Tensor tensors[MANY];
    Tensor *list[MANY];
    double norm = 0, wanted = sqrt(16777216.0 + (LONG - 1) * 0.9980010);
    gradient[0] = 4096;
    for (size_t i = 1; i < LONG; i++) gradient[i] = 0.999f;
    for (size_t k = 0; k < MANY; k++) {
        list[k] = &tensors[k];
        tensors[k] = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){EACH}, NULL);
        tensors[k].requires_grad = tensors[k].has_grad = true;
        tensors[k].grad = gradient + k * EACH;
    }
    rank->status =
        STUDENT(rank->grade, clip_gradients)(rank->group, list, MANY, 1e6, &norm, &rank->err);
    GRADE_EXPECT(rank->grade, fabs(norm - wanted) < 1e-4 * wanted,
                 "%d gradients have the length %.2f, and you say %.2f: the squares are added in a "
                 "double, for a float's sum stops growing.",
                 LONG, wanted, norm);
}

static void alone(Grade *grade) {
    Scene over = {.max_norm = 6.5};
    check(grade, &over, 1, 13, 0.5);
    grade_ranks(grade, 1, run_long, &(char){0});
}

static void short_enough(Grade *grade) {
    Scene one = {.max_norm = 26}, three = {.max_norm = 26};
    check(grade, &one, 1, 13, 1);
    check(grade, &three, 3, 13, 1);
}

static void several(Grade *grade) {
    Scene two = {.max_norm = 6.5}, three = {.max_norm = 6.5}, five = {.max_norm = 1.3};
    check(grade, &two, 2, 13, 0.5);
    check(grade, &three, 3, 13, 0.5);
    check(grade, &five, 5, 13, 0.1);
    Scene broken = {.max_norm = 6.5};
    grade_broken_ranks(grade, 2, run_rank, &broken);
}

static void frozen(Grade *grade) {
    Scene s = {.max_norm = 1, .frozen = true};
    check(grade, &s, 3, sqrt(153), 1 / sqrt(153));
}

static void shared(Grade *grade) {
    Scene s = {.max_norm = 6.5, .shared = true};
    check(grade, &s, 3, 13, 0.5);
}

const Grader grader_18_02 = {"18-accumulate-and-clip/02-clip-gradients",
                             {{"one rank", 2, NULL, alone},
                              {"short enough", 2, "one rank", short_enough},
                              {"two, three and five ranks", 3, "one rank", several},
                              {"a frozen parameter", 1, "one rank", frozen},
                              {"a shared parameter", 2, "one rank", shared}}};
