/* 02-same-batch.grade.c: steps whose times are easy to compute, and the fastest number of devices.
 */
#include "tutorials/28-what-it-buys/exercises/02-same-batch.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_28_02;

static bool is(double got, double wanted) {
    return fabs(got - wanted) <= 1e-9 * wanted;
}

static void step(Grade *grade) {
    const SameBatch job = {.compute_s = 60, .bytes = 31, .latency_s = 1, .bytes_per_s = 2};
    for (int w = 3; w >= 0; w--) { // the largest first: detects a half in place of 1 / W
        const int devices = GRADE_WORLDS[w], rounds = 2 * (devices - 1);
        double got = GRADE_CALL(grade, same_batch_step_s, job, devices);
        double own = 60.0 / devices, reduce = rounds * (1 + 15.5 / devices);
        GRADE_EXPECT(grade, devices > 1 || got == 60,
                     "One device computes all rows and sends nothing: 60 s, and not %g.", got);
        if (is(got, own + reduce)) continue;
        GRADE_EXPECT(grade, !is(got, 60 + reduce),
                     "Every device was given the whole batch; the devices share its rows.");
        GRADE_EXPECT(grade, !is(got, own + reduce / devices),
                     "Fewer rows make no fewer gradients: only computing is divided by W, and the "
                     "all-reduce is not.");
        GRADE_EXPECT(grade, !is(got, own + rounds * (1 + 15.5)),
                     "In a round of the ring a device sends one part of W, and not all bytes.");
        GRADE_EXPECT(grade, !is(got, own + reduce / 2),
                     "The ring goes round twice: once to add, and once to hand out the sums.");
        GRADE_EXPECT(grade, !is(got, own + 1 + rounds * 15.5 / devices),
                     "The latency is paid in every round, and here it is paid once.");
        GRADE_EXPECT(grade, !is(got, fmax(own, reduce)),
                     "This is the longer of the two; without overlap they come one after the "
                     "other.");
        grade_miss(grade, "A step of %d devices takes %g s, not %g.", devices, own + reduce, got);
    }
    const SameBatch large = {.compute_s = 60, .bytes = 1e10, .latency_s = 1, .bytes_per_s = 2};
    double got = GRADE_CALL(grade, same_batch_step_s, large, 2);
    GRADE_EXPECT(grade, is(got, 32 + 5e9),
                 "10,000,000,000 bytes take %g s, not %g: an int ends at 2,147,483,647.", 32 + 5e9,
                 got);
}

static void in_between(Grade *grade) {
    // 1, 2, 3, 4 devices: 1, 0.65, 0.6, 0.625 s, and longer with each further one.
    const SameBatch job = {.compute_s = 1, .bytes = 1, .latency_s = 0.05, .bytes_per_s = 20};
    int got = GRADE_CALL(grade, best_devices, job, 64);
    GRADE_EXPECT(grade, got != 64,
                 "The most devices were taken: but each adds rounds, and each round has its "
                 "latency.");
    GRADE_EXPECT(grade, got != 4 && got != 2,
                 "3 devices are better than 2 and than 4: the best number need not be a power of "
                 "two.");
    GRADE_EXPECT(grade, got == 3,
                 "1, 2, 3 and 4 devices take 1, 0.65, 0.6 and 0.625 s: 3 are best, and not %d.",
                 got);
    const SameBatch between = {.compute_s = 12.2, .bytes = 0, .latency_s = 1, .bytes_per_s = 1};
    got = GRADE_CALL(grade, best_devices, between, 8);
    GRADE_EXPECT(
        grade, got == 3,
        "2 devices take 8.1 s and 3 take 8.07 s: 3 are best, and not %d. Where the formula's "
        "shortest step lies between the two, at 2.47, rounding does not say it.",
        got);
}

static void at_the_ends(Grade *grade) {
    const SameBatch slow = {.compute_s = 1, .bytes = 30, .latency_s = 0, .bytes_per_s = 20};
    int got = GRADE_CALL(grade, best_devices, slow, 8);
    GRADE_EXPECT(grade, got == 1,
                 "To send the gradients takes longer than to compute everything: one device alone "
                 "is best, and not %d.",
                 got);
    const SameBatch fast = {.compute_s = 1, .bytes = 1, .latency_s = 0, .bytes_per_s = 1e9};
    got = GRADE_CALL(grade, best_devices, fast, 7);
    GRADE_EXPECT(grade, got <= 7, "7 devices are there, and %d were taken.", got);
    GRADE_EXPECT(grade, got == 7,
                 "With a network that costs nothing all devices are best, 7 of 7, and not %d.",
                 got);
}

static void equals(Grade *grade) {
    // 1, 2, 3, 4 devices: 12, 8, 8, 9 s.
    const SameBatch job = {.compute_s = 12, .bytes = 0, .latency_s = 1, .bytes_per_s = 1};
    int got = GRADE_CALL(grade, best_devices, job, 8);
    GRADE_EXPECT(grade, got == 2,
                 "2 and 3 devices take equally long, so the third one buys nothing: 2, and not %d.",
                 got);
}

const Grader grader_28_02 = {
    "28-what-it-buys/02-same-batch",
    {{"the time of a step", 4, NULL, step},
     {"the best number in between", 3, "the time of a step", in_between},
     {"the best number at the ends", 2, "the best number in between", at_the_ends},
     {"among equals the fewest", 1, "the best number in between", equals}}};
