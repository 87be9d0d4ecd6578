/* 01-worksheet.grade.c: jobs whose numbers were computed by hand. */
#include "tutorials/11-seeds-and-rate/exercises/01-worksheet.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_11_01;

typedef struct Case {
    Job job;
    Worksheet wanted;
} Case;

static const Case CASES[] = {
    {{1500, 5, 1, 60, 60, 0.5}, {60, 25, 125, 0.5}},   // one rank: nothing changes
    {{1500, 5, 4, 60, 60, 0.5}, {240, 7, 35, 2.0}},    // 375 samples each, 6 batches and 15 rows
    {{1500, 5, 4, 15, 60, 0.5}, {60, 25, 125, 0.5}},   // the same rows in all
    {{1500, 3, 3, 25, 100, 0.5}, {75, 20, 60, 0.375}}, // fewer rows than on one device
    {{100, 2, 3, 16, 16, 0.25}, {48, 3, 6, 0.75}},     // 34 samples each
    {{1001, 1, 5, 100, 50, 0.25}, {500, 3, 3, 2.5}},   // 201 samples each: a batch of one row
    {{1000, 10, 2, 250, 500, 0.25}, {500, 2, 20, 0.25}},
    {{5000000000, 300, 8, 32, 256, 0.5}, {256, 19531250, 5859375000, 0.5}}, // too many for an int
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static Worksheet filled(Grade *grade, const Case *c) {
    return GRADE_CALL(grade, fill_worksheet, &c->job);
}

static void batches(Grade *grade) {
    for (int i = 0; i < CASE_COUNT; i++) {
        size_t got = filled(grade, &CASES[i]).global_batch, wanted = CASES[i].wanted.global_batch;
        GRADE_EXPECT(grade, got == wanted || got != CASES[i].job.batch_per_rank,
                     "batch_per_rank is the rows of one rank; a step has the rows of all ranks.");
        GRADE_EXPECT(grade, got == wanted, "%d ranks with %zu rows each are %zu rows, not %zu.",
                     CASES[i].job.world, CASES[i].job.batch_per_rank, wanted, got);
    }
}

static void steps(Grade *grade) {
    for (int i = 0; i < CASE_COUNT; i++) {
        const Job *job = &CASES[i].job;
        const size_t ranks = (size_t)job->world, batch = job->batch_per_rank;
        size_t got = filled(grade, &CASES[i]).steps_per_epoch;
        size_t wanted = CASES[i].wanted.steps_per_epoch;
        GRADE_EXPECT(grade, got == wanted || ranks == 1 || got < job->samples / batch,
                     "These are the steps of one rank alone: the samples are shared.");
        GRADE_EXPECT(grade,
                     got == wanted || job->samples % ranks == 0 ||
                         got != (job->samples / ranks + batch - 1) / batch,
                     "A rank has samples / world samples, rounded up: the sampler fills up. (%zu "
                     "samples, %zu ranks)",
                     job->samples, ranks);
        GRADE_EXPECT(grade, got + 1 != wanted,
                     "The short last batch is a step, too: round up. (%zu samples, %zu ranks, %zu "
                     "rows each: %zu steps, not %zu)",
                     job->samples, ranks, batch, wanted, got);
        GRADE_EXPECT(grade, got == wanted,
                     "%zu samples, %zu ranks, %zu rows each are %zu steps, not %zu.", job->samples,
                     ranks, batch, wanted, got);
    }
}

static void schedule(Grade *grade) {
    for (int i = 0; i < CASE_COUNT; i++) {
        const Job *job = &CASES[i].job;
        size_t got = filled(grade, &CASES[i]).total_steps, wanted = CASES[i].wanted.total_steps;
        GRADE_EXPECT(grade, got == wanted || got != wanted * (size_t)job->world,
                     "The schedule has W times too many steps: all ranks step together.");
        GRADE_EXPECT(grade, got == wanted, "%zu epochs are %zu steps, not %zu.", job->epochs,
                     wanted, got);
    }
}

static void rate(Grade *grade) {
    for (int i = 0; i < CASE_COUNT; i++) {
        const Job *job = &CASES[i].job;
        double got = filled(grade, &CASES[i]).lr, wanted = CASES[i].wanted.lr;
        bool right = got > wanted * 0.999999 && got < wanted * 1.000001;
        GRADE_EXPECT(grade, right || got != job->base_lr,
                     "The rate was not changed, although a step has another number of rows. (%zu "
                     "for %zu)",
                     CASES[i].wanted.global_batch, job->base_batch);
        GRADE_EXPECT(grade, right || got != job->base_lr * job->world,
                     "The rate was multiplied by the number of ranks; it is the rows that count. "
                     "(%d ranks, %zu rows for %zu)",
                     job->world, CASES[i].wanted.global_batch, job->base_batch);
        GRADE_EXPECT(grade, right, "%zu rows instead of %zu: the rate %g becomes %g, not %g.",
                     CASES[i].wanted.global_batch, job->base_batch, job->base_lr, wanted, got);
    }
}

const Grader grader_11_01 = {"11-seeds-and-rate/01-worksheet",
                             {{"the rows of a step", 2, NULL, batches},
                              {"the steps of an epoch", 3, "the rows of a step", steps},
                              {"the schedule's steps", 2, "the steps of an epoch", schedule},
                              {"the learning rate", 3, "the rows of a step", rate}}};
