/* 02-make-equal.grade.c: a weight, a frozen weight, a running mean and a counter. */
#include "tutorials/09-replicas/exercises/02-make-equal.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_09_02;

enum { MOST_RANKS = 5, COUNT = 6, TENSORS = 5 };

typedef struct Model {
    float weight[COUNT], frozen[COUNT], running_mean[COUNT];
    int64_t batches;
    uint16_t halves[3]; // BF16: 6 bytes, not a multiple of a float's size
} Model;

typedef struct Scene {
    Model models[MOST_RANKS];
    size_t calls[MOST_RANKS];
} Scene;

// A counter whose bytes all identify the rank.
static int64_t counter(int rank) {
    return 0x0101010101010101 * (int64_t)(rank + 1);
}

static Model model_of(int rank) {
    Model model = {.batches = counter(rank)};
    for (int i = 0; i < COUNT; i++) {
        model.weight[i] = (float)(1 << rank) + (float)(64 * i);
        model.frozen[i] = model.weight[i] + 1000.0f;
        model.running_mean[i] = model.weight[i] + 2000.0f;
    }
    memcpy(model.halves, &model.batches, sizeof model.halves);
    model.weight[COUNT - 1] = -0.0f; // equal to 0, with other bits
    return model;
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    Model *model = &scene->models[rank->rank];
    *model = model_of(rank->rank);
    const size_t shape[] = {COUNT};
    Tensor tensors[] = {tensor_make(NULL, DTYPE_F32, 1, shape, model->weight),
                        tensor_make(NULL, DTYPE_F32, 1, shape, model->frozen),
                        tensor_make(NULL, DTYPE_F32, 1, shape, model->running_mean),
                        tensor_make(NULL, DTYPE_I64, 0, NULL, &model->batches),
                        tensor_make(NULL, DTYPE_BF16, 1, (size_t[]){3}, model->halves)};
    tensors[0].requires_grad = true;
    Tensor *list[] = {&tensors[0], &tensors[1], &tensors[2], &tensors[3], &tensors[4]};
    rank->status = STUDENT(rank->grade, make_equal)(rank->group, list, TENSORS, &rank->err);
    scene->calls[rank->rank] = watch_calls(rank->log);
}

static void weights(Grade *grade) {
    for (int w = 0; w < 4; w++) {
        int world = GRADE_WORLDS[w];
        Scene scene = {0};
        grade_ranks(grade, world, run_rank, &scene);
        for (int r = 0; r < world; r++) {
            float got = scene.models[r].weight[1], first = model_of(0).weight[1];
            float last = model_of(world - 1).weight[1], mean = 0;
            for (int k = 0; k < world; k++) mean += model_of(k).weight[1];
            mean *= 1.0f / (float)world;
            GRADE_EXPECT(grade, world == 1 || got != mean,
                         "The weights were averaged: copy rank 0's weights instead.");
            GRADE_EXPECT(grade, world == 1 || r > 0 || got != last,
                         "These are the last rank's weights; they must be rank 0's.");
            GRADE_EXPECT(grade,
                         r == 0 || got != model_of(r).weight[1] ||
                             scene.models[r].weight[0] != model_of(0).weight[0],
                         "Only the beginning of a tensor arrived: PG_U8 counts bytes, and "
                         "tensor_bytes says how many there are.");
            GRADE_EXPECT(grade, got == first, "%d ranks: rank %d has the weight %g, rank 0 %g.",
                         world, r, (double)got, (double)first);
        }
    }
}

static void everything(Grade *grade) {
    Scene scene = {0};
    Model wanted = model_of(0);
    grade_ranks(grade, 3, run_rank, &scene);
    for (int r = 0; r < 3; r++) {
        const Model *got = &scene.models[r];
        GRADE_EXPECT(
            grade, memcmp(got->running_mean, wanted.running_mean, sizeof wanted.running_mean) == 0,
            "A buffer still differs: batch norm's statistics belong to the model, too.");
        GRADE_EXPECT(grade, memcmp(got->frozen, wanted.frozen, sizeof wanted.frozen) == 0,
                     "A frozen weight still differs: it is not trained, but it is used.");
        GRADE_EXPECT(grade, got->batches != counter(r) || r == 0,
                     "A buffer still differs: batch norm's count of batches.");
        GRADE_EXPECT(grade, got->batches == wanted.batches,
                     "Only a part of a tensor arrived: an I64 has 8 bytes, and tensor_bytes knows "
                     "that.");
        GRADE_EXPECT(grade, memcmp(got->halves, wanted.halves, sizeof wanted.halves) == 0,
                     "Only a part of a tensor arrived: three BF16 have 6 bytes, not a multiple of "
                     "a float's 4.");
        GRADE_EXPECT(grade, got->weight[COUNT - 1] != 0 || signbit(got->weight[COUNT - 1]),
                     "-0 became 0: something was added to it. A broadcast copies bits.");
        GRADE_EXPECT(grade, memcmp(got->weight, wanted.weight, sizeof wanted.weight) == 0,
                     "A weight still differs.");
    }
}

static void once_each(Grade *grade) {
    Scene scene = {0};
    grade_ranks(grade, 2, run_rank, &scene);
    GRADE_EXPECT(grade, scene.calls[0] > 0, "Nothing was sent.");
    GRADE_EXPECT(grade, scene.calls[0] <= TENSORS, "%d tensors, and %zu collectives.", TENSORS,
                 scene.calls[0]);
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

const Grader grader_09_02 = {
    "09-replicas/02-make-equal",
    {{"the weights are rank 0's", 4, NULL, weights},
     {"frozen weights and buffers", 4, "the weights are rank 0's", everything},
     {"one collective each", 2, "frozen weights and buffers", once_each}}};
