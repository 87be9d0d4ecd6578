/* 02-average-in-buckets.grade.c: known means on every rank; then the number of messages (at most
 * one per bucket) and of bytes (at least all gradients' bytes).
 */
#include "tutorials/12-buckets/exercises/02-average-in-buckets.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_12_02;

enum { MOST_RANKS = 5, PARAMETERS = 5, MOST = 24, ROOM = PARAMETERS * MOST, MOST_CALLS = 8 };

static const size_t FLOATS[PARAMETERS] = {15, 4, 24, 4, 6}; // 60, 16, 96, 16 and 24 bytes

typedef enum Kind { PLAIN, FROZEN, SHARED } Kind; // of one parameter (SHARED: with parameter 3)

typedef struct Scene {
    Kind kind;
    int odd_one; // the parameter of this kind
    size_t cap;
    float gradients[MOST_RANKS][PARAMETERS][MOST];
    size_t calls[MOST_RANKS], bytes[MOST_RANKS];
    bool behind[MOST_RANKS];   // something was written behind memory
    size_t floats[MOST_CALLS]; // of rank 0's collectives, in order
} Scene;

// Sums of powers of two: exact, also when divided by the number of ranks after adding.
static float number(int rank, int parameter, size_t i) {
    return (float)(1 << rank) + (float)(32 * (parameter + 1)) + (float)(256 * i);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    Tensor tensors[PARAMETERS];
    Tensor *list[PARAMETERS];
    float memory[ROOM];
    size_t all = 0;
    for (size_t i = 0; i < ROOM; i++) memory[i] = -1.0f;
    for (int k = 0; k < PARAMETERS; k++) {
        float *gradient = scene->gradients[rank->rank][k];
        for (size_t i = 0; i < FLOATS[k]; i++) gradient[i] = number(rank->rank, k, i);
        tensors[k] = tensor_make(NULL, DTYPE_F32, 1, &FLOATS[k], NULL);
        tensors[k].requires_grad = tensors[k].has_grad = true;
        tensors[k].grad = gradient;
        list[k] = &tensors[k];
        all += FLOATS[k];
    }
    Tensor *odd_one = &tensors[scene->odd_one];
    if (scene->kind == FROZEN) odd_one->requires_grad = odd_one->has_grad = false;
    if (scene->kind == SHARED) list[scene->odd_one] = list[3];
    rank->status = STUDENT(rank->grade, average_in_buckets)(rank->group, list, PARAMETERS,
                                                            scene->cap, memory, &rank->err);
    scene->behind[rank->rank] = memory[all] != -1.0f;
    for (int k = 0; k < PARAMETERS; k++)
        GRADE_EXPECT(rank->grade,
                     tensors[k].requires_grad == (scene->kind != FROZEN || k != scene->odd_one),
                     "Parameter %d's requires_grad was changed: the next step would leave it out, "
                     "or train a frozen one.",
                     k);
    for (size_t i = 0; i < rank->log->count; i++) {
        const WatchEvent *event = &rank->log->events[i];
        scene->bytes[rank->rank] += event->bytes;
        if (event->kind != WATCH_RUN && event->kind != WATCH_START) continue;
        size_t call = scene->calls[rank->rank]++;
        if (rank->rank == 0 && call < MOST_CALLS) scene->floats[call] = event->collective.count;
    }
}

static bool is_own(const Scene *scene, int rank, int k) {
    return scene->gradients[rank][k][0] == number(rank, k, 0);
}

// One number of one gradient on one rank: a sentence for each common mistake.
static void check_number(Grade *grade, const Scene *scene, int world, int rank, int k, size_t i) {
    float sum = 0, got = scene->gradients[rank][k][i];
    for (int r = 0; r < world; r++) sum += number(r, k, i);
    float scale = 1.0f / (float)world, mean = sum * scale;
    bool nothing = is_own(scene, rank, 0) && is_own(scene, rank, PARAMETERS - 1);
    GRADE_EXPECT(grade, got != 0.0f,
                 "The gradients are 0 on every rank: all agree, and none learns.");
    GRADE_EXPECT(grade, world == 1 || got != sum,
                 "This is the sum of the gradients: every step is as many times too long as there "
                 "are ranks.");
    GRADE_EXPECT(grade, world == 1 || got != mean * scale,
                 "This is the mean, divided by the number of ranks once more: PG_AVG has done "
                 "that.");
    GRADE_EXPECT(grade, i == 0 || got != number(rank, k, i) || is_own(scene, rank, k),
                 "Only the beginning of a gradient was reduced: memcpy counts bytes, and a float "
                 "has four.");
    GRADE_EXPECT(grade, world == 1 || !nothing || scene->calls[rank] == 0 || rank == 0,
                 "The means stayed in memory: no gradient has changed.");
    GRADE_EXPECT(grade, world == 1 || got != number(rank, k, i) || k > 0 || nothing,
                 "The last bucket was not reduced: it need not be full.");
    GRADE_EXPECT(grade, rank == 0 || got != number(0, k, i),
                 "All ranks have the gradients of rank 0: the other ranks' gradients are lost.");
    for (int other = 0; other < PARAMETERS; other++)
        GRADE_EXPECT(grade, other == k || got != mean + 32.0f * (float)(other - k),
                     "Gradients of one bucket overlap in memory: each begins where the previous "
                     "gradient ends.");
    GRADE_EXPECT(grade, got == mean || fabsf(got - mean) > 1e-5f * mean,
                 "The mean is right except for its last bits: PG_AVG adds all ranks and then "
                 "multiplies by 1 / W, once. To divide by W, or each rank before, rounds "
                 "differently.");
    GRADE_EXPECT(grade, got == mean,
                 "%d ranks: the mean of gradient %d at %zu is %g, and rank %d has %g.", world, k, i,
                 (double)mean, rank, (double)got);
}

static void check_means(Grade *grade, Scene *scene, int world) {
    grade_ranks(grade, world, run_rank, scene);
    GRADE_EXPECT(grade, scene->bytes[0] < 4 * 49 * sizeof(float),
                 "pg_all_reduce counts numbers, and was given the bytes of a bucket: four times as "
                 "many.");
    for (int rank = world - 1; rank >= 0; rank--)
        for (int k = 0; k < PARAMETERS; k++)
            for (size_t i = 0; i < FLOATS[k]; i++)
                if (scene->kind == PLAIN || k != scene->odd_one)
                    check_number(grade, scene, world, rank, k, i);
    for (int rank = 0; rank < world; rank++)
        GRADE_EXPECT(grade, !scene->behind[rank],
                     "Something was written behind memory, which has room for all gradients.");
}

static void check(Grade *grade, Scene *scene, int world, size_t cap) {
    *scene = (Scene){.cap = cap};
    check_means(grade, scene, world);
}

// wanted: the floats of each bucket, ended by 0.
static void check_buckets(Grade *grade, const Scene *scene, const size_t *wanted,
                          const char *sentence) {
    for (size_t b = 0; wanted[b] > 0; b++)
        GRADE_EXPECT(grade, scene->floats[b] == wanted[b],
                     "%s (cap %zu: bucket %zu has %zu floats, and should have %zu)", sentence,
                     scene->cap, b, scene->floats[b], wanted[b]);
}

// More parameters than a fixed array may hold; the first one is the last.
static void run_large_model(GradeRank *rank) {
    enum { MANY = 5000 };
    static float gradients[2][MANY], memories[2][MANY];
    static Tensor tensors[2][MANY];
    static Tensor *lists[2][MANY];
    Tensor **list = lists[rank->rank];
    for (size_t k = 0; k < MANY; k++) {
        float *gradient = &gradients[rank->rank][k];
        Tensor *tensor = list[k] = &tensors[rank->rank][k];
        *gradient = (float)(2 * k) + (float)(2 * rank->rank);
        *tensor = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){1}, NULL);
        tensor->requires_grad = tensor->has_grad = true;
        tensor->grad = gradient;
    }
    list[0] = list[MANY - 1];
    rank->status = STUDENT(rank->grade, average_in_buckets)(rank->group, list, MANY, 4 * MANY,
                                                            memories[rank->rank], &rank->err);
    for (size_t k = 1; k < MANY && rank->status == 0; k++)
        GRADE_EXPECT(rank->grade, gradients[rank->rank][k] == (float)(2 * k + 1),
                     "Of %d parameters, number %zu has the mean %g, and should have %zu.", MANY, k,
                     (double)gradients[rank->rank][k], 2 * k + 1);
}

// Several calls, as in a training's steps.
static void run_steps(GradeRank *rank) {
    enum { STEPS = 4 };
    float gradients[2] = {1, 2}, memory[2];
    Tensor tensor = tensor_make(NULL, DTYPE_F32, 1, (size_t[]){2}, NULL);
    Tensor *list[1] = {&tensor};
    long blocks = 0;
    tensor.requires_grad = tensor.has_grad = true;
    tensor.grad = gradients;
    for (int step = 0; step < STEPS && rank->status == 0; step++) {
        rank->status =
            STUDENT(rank->grade, average_in_buckets)(rank->group, list, 1, 100, memory, &rank->err);
        if (step == 0) blocks = watch_blocks();
    }
    blocks = watch_blocks() - blocks;
    GRADE_EXPECT(rank->grade, blocks <= 0,
                 "In %d more steps %ld blocks of memory were allocated and never freed: a training "
                 "runs out of it.",
                 STEPS - 1, blocks);
}

static void two_ranks(Grade *grade) {
    static Scene scene;
    check(grade, &scene, 2, 0);
    check(grade, &scene, 2, 120);
    grade_ranks(grade, 1, run_steps, &(char){0});
    check(grade, &scene, 2, 10000);
}

static void all_worlds(Grade *grade) {
    static Scene scene;
    for (int w = 0; w < 4; w++) {
        check(grade, &scene, GRADE_WORLDS[w], 1);
        check(grade, &scene, GRADE_WORLDS[w], 64);
    }
    scene.calls[0] = scene.bytes[0] = 0;
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

static bool has_empty(const Scene *scene) {
    for (size_t call = 0; call < scene->calls[0] && call < MOST_CALLS; call++)
        if (scene->floats[call] == 0) return true;
    return false;
}

static void messages(Grade *grade) {
    static Scene scene;
    const size_t CAPS[][2] = {{0, 5}, {30, 3}, {40, 3}, {120, 2}, {10000, 1}}; // and their buckets
    for (size_t i = 0; i < sizeof CAPS / sizeof *CAPS; i++) {
        check(grade, &scene, 3, CAPS[i][0]);
        GRADE_EXPECT(grade, scene.bytes[0] >= 53 * sizeof(float),
                     "%zu bytes were sent; the gradients have %zu.", scene.bytes[0],
                     53 * sizeof(float));
        GRADE_EXPECT(grade, scene.bytes[0] > 53 * sizeof(float) || !has_empty(&scene),
                     "A bucket without gradients was reduced: the previous bucket was full, and no "
                     "gradient was left. (cap %zu)",
                     CAPS[i][0]);
        GRADE_EXPECT(grade, scene.calls[0] <= CAPS[i][1],
                     "Each gradient travels alone: these are too many messages. (cap %zu: %zu, and "
                     "%zu are enough)",
                     CAPS[i][0], scene.calls[0], CAPS[i][1]);
        GRADE_EXPECT(grade, scene.calls[0] == CAPS[i][1] || CAPS[i][0] != 40,
                     "A bucket that holds exactly `cap` bytes is full.");
        GRADE_EXPECT(grade, scene.calls[0] == CAPS[i][1],
                     "All gradients are in one bucket, though `cap` requires several. (cap %zu: "
                     "%zu buckets)",
                     CAPS[i][0], CAPS[i][1]);
    }
    const char *sentence = "The buckets are cut from the last parameter to the first.";
    check(grade, &scene, 3, 30);
    check_buckets(grade, &scene, (size_t[]){10, 24, 19, 0}, sentence);
    check(grade, &scene, 3, 120);
    check_buckets(grade, &scene, (size_t[]){34, 19, 0}, sentence);
}

static void frozen(Grade *grade) {
    static Scene scene;
    for (int odd_one = 1; odd_one <= 3; odd_one += 2) {
        scene = (Scene){.kind = FROZEN, .odd_one = odd_one, .cap = odd_one == 1 ? 30 : 130};
        check_means(grade, &scene, 3);
        GRADE_EXPECT(grade,
                     scene.gradients[2][odd_one][0] == number(2, odd_one, 0) &&
                         scene.bytes[0] <= 49 * 4,
                     "A frozen parameter was put into a bucket; it has no gradient.");
    }
    check_buckets(grade, &scene, (size_t[]){34, 15, 0},
                  "A frozen parameter counted as if it filled a bucket.");
}

static void shared(Grade *grade) {
    static Scene scene;
    scene = (Scene){.kind = SHARED, .odd_one = 1, .cap = 10000};
    check_means(grade, &scene, 3);
    GRADE_EXPECT(grade, scene.bytes[0] <= 49 * sizeof(float),
                 "The shared parameter was sent twice: it is in the list twice. (%zu bytes, and "
                 "%zu are needed)",
                 scene.bytes[0], 49 * sizeof(float));
    scene = (Scene){.kind = SHARED, .odd_one = 1, .cap = 30};
    check_means(grade, &scene, 2);
    check_buckets(grade, &scene, (size_t[]){10, 24, 15, 0},
                  "A shared parameter belongs in the bucket of its last place in the list.");
    scene = (Scene){.kind = SHARED, .odd_one = 2, .cap = 70};
    check_means(grade, &scene, 2);
    check_buckets(grade, &scene, (size_t[]){29, 0},
                  "A shared parameter counted twice as if it filled a bucket twice.");
    grade_ranks(grade, 2, run_large_model, &(char){0});
}

const Grader grader_12_02 = {"12-buckets/02-average-in-buckets",
                             {{"the mean on two ranks", 3, NULL, two_ranks},
                              {"one, three and five ranks", 1, "the mean on two ranks", all_worlds},
                              {"messages and bytes", 3, "the mean on two ranks", messages},
                              {"a frozen parameter", 1, "messages and bytes", frozen},
                              {"a shared parameter", 2, "messages and bytes", shared}}};
