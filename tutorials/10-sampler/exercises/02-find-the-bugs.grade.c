/* 02-find-the-bugs.grade.c: each rank's results, and the samples that each rank has tested. */
#include "tutorials/10-sampler/exercises/02-find-the-bugs.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_10_02;

enum { MOST_RANKS = 5, MOST_SAMPLES = 32, EPOCH = 6 };

#define SEED   (((uint64_t)1 << 40) + 17)
#define CLOCK  ((uint64_t)1700000000)
#define WEIGHT 2.5f

typedef struct Scene {
    bool rests, tests;
    size_t test_count;
    Script scripts[MOST_RANKS];
    int tested[MOST_RANKS][MOST_SAMPLES];
    int strange[MOST_RANKS]; // samples beyond the test set
} Scene;

static Scene scene;
static Scene *played; // in the ranks' shared memory; is_right has no argument for it

// Right about every third sample.
static bool is_right(const Script *script, size_t sample) {
    int rank = pg_rank(script->group);
    if (sample >= script->test_count)
        played->strange[rank]++;
    else
        played->tested[rank][sample]++;
    return sample % 3 == 0;
}

static void run_rank(GradeRank *rank) {
    played = rank->context;
    Script *script = &played->scripts[rank->rank];
    *script = (Script){.group = rank->group,
                       .seed_option = SEED,
                       .clock = CLOCK + (uint64_t)rank->rank,
                       .some_weights_may_rest = played->rests,
                       .saved_epoch = EPOCH,
                       .saved_weight = WEIGHT,
                       .test_count = played->test_count,
                       .is_right = is_right,
                       .weight = 1.0f};
    if (!played->tests) {
        rank->status = STUDENT(rank->grade, script_begin)(script, &rank->err);
        if (rank->status == 0)
            rank->status = STUDENT(rank->grade, script_resume)(script, &rank->err);
    } else {
        rank->status = STUDENT(rank->grade, script_test)(script, &rank->err);
    }
}

static void play(Grade *grade, int world, bool rests, size_t test_count) {
    scene = (Scene){.rests = rests, .tests = test_count > 0, .test_count = test_count};
    grade_ranks(grade, world, run_rank, &scene);
}

static void seed(Grade *grade) {
    for (int w = 0; w < 4; w++) {
        play(grade, GRADE_WORLDS[w], false, 0);
        for (int r = 0; r < GRADE_WORLDS[w]; r++) {
            uint64_t got = scene.scripts[r].seed;
            GRADE_EXPECT(grade, got < CLOCK || got >= CLOCK + MOST_RANKS,
                         "The seed comes from the clock: no run can be repeated.");
            GRADE_EXPECT(grade, got == scene.scripts[0].seed,
                         "Each rank shuffles with a seed of its own: some samples are dealt out to "
                         "no rank.");
            GRADE_EXPECT(grade, got != (uint32_t)SEED,
                         "A half of the seed was cut off: it has 64 bits.");
            GRADE_EXPECT(grade, got == SEED, "The user asked for another seed: seed_option.");
        }
    }
}

static void search(Grade *grade) {
    play(grade, 3, false, 0);
    for (int r = 0; r < 3; r++)
        GRADE_EXPECT(grade, !scene.scripts[r].find_unused_parameters,
                     "The search for unused parameters is on, though every parameter is used: it "
                     "only costs time.");
    play(grade, 3, true, 0);
    for (int r = 0; r < 3; r++)
        GRADE_EXPECT(
            grade, scene.scripts[r].find_unused_parameters,
            "Parameters may rest: without the search the reducer waits for gradients forever.");
}

static void resume(Grade *grade) {
    for (int w = 0; w < 4; w++) {
        play(grade, GRADE_WORLDS[w], false, 0);
        const Script *first = &scene.scripts[0];
        for (int r = 0; r < GRADE_WORLDS[w]; r++) {
            const Script *script = &scene.scripts[r];
            GRADE_EXPECT(grade,
                         first->epoch != EPOCH || first->weight != WEIGHT ||
                             script->epoch == EPOCH || script->weight == WEIGHT,
                         "Only rank 0 resumes from the checkpoint; the other ranks start from "
                         "epoch 0. (rank %d of %d)",
                         r, GRADE_WORLDS[w]);
            GRADE_EXPECT(grade, script->weight != WEIGHT || script->epoch == EPOCH,
                         "The epoch is not the saved one: the sampler deals out old orders once "
                         "more. (rank %d of %d)",
                         r, GRADE_WORLDS[w]);
            GRADE_EXPECT(grade, script->weight == WEIGHT && script->epoch == EPOCH,
                         "Rank %d of %d resumes in epoch %d with the weight %g; saved were %d and "
                         "%g.",
                         r, GRADE_WORLDS[w], script->epoch, (double)script->weight, EPOCH,
                         (double)WEIGHT);
        }
    }
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

static int tests_of(int rank) {
    int count = scene.strange[rank];
    for (size_t i = 0; i < MOST_SAMPLES; i++) count += scene.tested[rank][i];
    return count;
}

static void check_shares(Grade *grade, int world, size_t samples) {
    int all = 0;
    for (int r = 0; r < world; r++) all += tests_of(r);
    GRADE_EXPECT(grade, world == 1 || tests_of(0) == 0 || tests_of(1) > 0,
                 "Rank 0 tests alone: the other ranks neither help nor know the result.");
    GRADE_EXPECT(grade, world == 1 || all != world * (int)samples,
                 "Every rank tests the whole test set: the work is done W times.");
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, tests_of(r) <= (int)samples / world + world,
                     "One rank tests for others, which test less: all are to share the work. (rank "
                     "%d of %d tests %d of %zu samples)",
                     r, world, tests_of(r), samples);
    for (size_t i = 0; i < samples; i++) {
        int times = 0;
        for (int r = 0; r < world; r++) times += scene.tested[r][i];
        GRADE_EXPECT(grade, times < 2,
                     "A sample was tested twice: the padding of shares in training must not be in "
                     "a test. (%zu samples, %d ranks)",
                     samples, world);
        GRADE_EXPECT(grade, times == 1, "Sample %zu of %zu was tested by no rank. (%d ranks)", i,
                     samples, world);
    }
}

static void check_accuracy(Grade *grade, int world, size_t samples) {
    const double truth = (double)((samples + 2) / 3) / (double)samples;
    double mean = 0;
    for (int r = 0; r < world; r++) { // of the shares that were tested
        int right = 0;
        for (size_t i = 0; i < samples; i += 3) right += scene.tested[r][i];
        mean += (double)right / tests_of(r) / world;
    }
    for (int r = 0; r < world; r++) {
        double got = scene.scripts[r].accuracy;
        bool is_mean = got > mean - 1e-6 && got < mean + 1e-6;
        bool is_true = got > truth - 1e-6 && got < truth + 1e-6;
        GRADE_EXPECT(grade, is_true || !is_mean,
                     "This is the mean of the ranks' accuracies, though one has fewer samples than "
                     "another. (%zu samples, %d ranks)",
                     samples, world);
        GRADE_EXPECT(grade, is_true || r > 0 || got == scene.scripts[world - 1].accuracy,
                     "The accuracy is that of a part of the test set: each rank has only tested "
                     "its share.");
        GRADE_EXPECT(grade, is_true,
                     "Rank %d of %d says %g; %zu of %zu samples are right, which is %g.", r, world,
                     got, (samples + 2) / 3, samples, truth);
    }
}

static void test_even(Grade *grade) {
    play(grade, 1, false, 12);
    check_accuracy(grade, 1, 12);
    play(grade, 2, false, 14);
    check_shares(grade, 2, 14);
    check_accuracy(grade, 2, 14);
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

static void test_uneven(Grade *grade) {
    for (int w = 1; w < 4; w++) {
        play(grade, GRADE_WORLDS[w], false, 31);
        check_shares(grade, GRADE_WORLDS[w], 31);
        check_accuracy(grade, GRADE_WORLDS[w], 31);
    }
    play(grade, 5, false, 3); // two ranks have nothing to test, and belong to the group
    check_shares(grade, 5, 3);
    check_accuracy(grade, 5, 3);
}

const Grader grader_10_02 = {
    "10-sampler/02-find-the-bugs",
    {{"the seed", 2, NULL, seed},
     {"the search for unused parameters", 2, NULL, search},
     {"all ranks resume", 2, NULL, resume},
     {"the accuracy of the test set", 2, NULL, test_even},
     {"a test set that does not divide", 2, "the accuracy of the test set", test_uneven}}};
