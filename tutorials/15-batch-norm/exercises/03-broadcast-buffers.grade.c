/* 03-broadcast-buffers.grade.c: a sequence of forwards: the buffers before each, and the calls.
 */
#include "tutorials/15-batch-norm/exercises/03-broadcast-buffers.h"

#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_15_03;

enum { MOST_RANKS = 5, MOST_FORWARDS = 8, COUNT = 6, BUFFERS = 3 };

typedef struct Scene {
    const char *modes;                            // 't' or 'e' for each forward
    float mean[MOST_RANKS][MOST_FORWARDS][COUNT]; // buffers when the forward begins
    int64_t batches[MOST_RANKS][MOST_FORWARDS];
    size_t calls[MOST_RANKS][MOST_FORWARDS]; // before it
} Scene;

// A counter whose bytes all identify the rank and the forward.
static int64_t counter(int rank, size_t forward) {
    return 0x0101010101010101 * (int64_t)(8 * (int)forward + rank + 1);
}

static float number(int rank, size_t forward, size_t i) {
    return (float)(1 << rank) + 64.0f * (float)forward + 1024.0f * (float)i;
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    float mean[COUNT] = {0};
    int64_t batches = 0;
    _Alignas(int64_t) uint16_t third[8] = {0}; // 3 BF16: 6 bytes, not a multiple of a float's size
    Tensor tensors[BUFFERS] = {tensor_make(NULL, DTYPE_F32, 1, (size_t[]){COUNT}, NULL),
                               tensor_make(NULL, DTYPE_I64, 0, NULL, NULL),
                               tensor_make(NULL, DTYPE_BF16, 1, (size_t[]){3}, NULL)};
    tensors[0].data = mean;
    tensors[1].data = &batches;
    tensors[2].data = third;
    Tensor *buffers[BUFFERS] = {&tensors[0], &tensors[1], &tensors[2]};
    bool changed = false;
    for (size_t f = 0; s->modes[f]; f++) {
        size_t before = watch_calls(rank->log);
        rank->status = STUDENT(rank->grade, before_forward)(
            rank->group, buffers, BUFFERS, s->modes[f] == 't', &changed, &rank->err);
        if (rank->err.status != STATUS_OK) return;
        GRADE_EXPECT(rank->grade, third[0] == (uint16_t)batches,
                     "The second buffer arrived, and the third did not: count says how many there "
                     "are.");
        GRADE_EXPECT(rank->grade, third[1] == third[0] && third[2] == third[0],
                     "Only a part of a buffer arrived: three BF16 have 6 bytes, not a multiple of "
                     "a float's 4.");
        s->calls[r][f] = watch_calls(rank->log) - before;
        memcpy(s->mean[r][f], mean, sizeof mean);
        s->batches[r][f] = batches;
        if (s->modes[f] == 'e') continue;
        for (size_t i = 0; i < COUNT; i++) mean[i] = number(r, f, i);
        batches = counter(r, f);
        for (int i = 0; i < 3; i++) third[i] = (uint16_t)batches;
    }
}

// Whether rank's forward begins with the buffers that `who` computed in an earlier one.
static bool is_of(const Scene *s, int who, int rank, size_t forward, size_t i) {
    for (size_t f = 0; f < forward; f++)
        if (s->modes[f] == 't' && s->mean[rank][forward][i] == number(who, f, i)) return true;
    return false;
}

static void check_values(Grade *grade, const Scene *s, int world, size_t f) {
    const float *first = s->mean[0][f];
    size_t last = f; // number of the last training forward, from 1; 0: none
    while (last > 0 && s->modes[last - 1] != 't') last--;
    GRADE_EXPECT(grade, world == 1 || last == 0 || first[0] != number(world - 1, last - 1, 0),
                 "These are the last rank's buffers; they must be rank 0's.");
    for (int r = 1; r < world; r++) {
        const char *mode = s->modes[f] == 't' ? "training" : "evaluation";
        GRADE_EXPECT(grade, !is_of(s, r, r, f, 0),
                     "A forward of %s began with each rank's own buffers: a training forward had "
                     "changed them. (%s, forward %zu)",
                     mode, s->modes, f);
        GRADE_EXPECT(grade, !is_of(s, r, r, f, COUNT - 1),
                     "Only a part of a buffer arrived: tensor_bytes counts bytes.");
        GRADE_EXPECT(grade, memcmp(first, s->mean[r][f], sizeof s->mean[r][f]) == 0,
                     "The ranks have different buffers. (%s, forward %zu, rank %d)", s->modes, f,
                     r);
        GRADE_EXPECT(grade, last == 0 || s->batches[r][f] != counter(r, last - 1),
                     "The running mean arrived, and the count of batches did not: all buffers are "
                     "to be sent, also those of integers.");
        GRADE_EXPECT(grade, s->batches[r][f] == s->batches[0][f],
                     "The running mean is equal on all ranks, and the count of batches is not: an "
                     "I64 has 8 bytes.");
    }
    GRADE_EXPECT(grade, last == 0 || first[0] == number(0, last - 1, 0),
                 "The buffers are equal, but not rank 0's: a broadcast, and not a mean.");
}

static void check(Grade *grade, const char *modes, int world) {
    Scene s = {.modes = modes};
    grade_ranks(grade, world, run_rank, &s);
    bool changed = false;
    for (size_t f = 0; modes[f]; f++) {
        check_values(grade, &s, world, f);
        GRADE_EXPECT(grade, changed || s.calls[0][f] == 0,
                     "Something was sent although nothing had changed since the last time. (%s, "
                     "forward %zu)",
                     modes, f);
        GRADE_EXPECT(grade, s.calls[0][f] <= BUFFERS, "%zu collectives for %d buffers.",
                     s.calls[0][f], BUFFERS);
        changed = modes[f] == 't';
    }
}

static void training(Grade *grade) {
    check(grade, "tt", 2);
    check(grade, "ttt", 3);
    check(grade, "tt", 5);
}

static void evaluation(Grade *grade) {
    check(grade, "te", 2);
    check(grade, "tte", 3);
    check(grade, "tette", 5);
}

static void no_need(Grade *grade) {
    check(grade, "t", 2);
    check(grade, "eet", 3);
    check(grade, "tteet", 3);
    check(grade, "teeeett", 2);
    Scene broken = {.modes = "tt"};
    grade_broken_ranks(grade, 2, run_rank, &broken);
}

static void alone(Grade *grade) {
    check(grade, "ttet", 1);
}

const Grader grader_15_03 = {"15-batch-norm/03-broadcast-buffers",
                             {{"training", 4, NULL, training},
                              {"evaluation after training", 3, "training", evaluation},
                              {"only if they have changed", 2, "training", no_need},
                              {"one rank", 1, "training", alone}}};
