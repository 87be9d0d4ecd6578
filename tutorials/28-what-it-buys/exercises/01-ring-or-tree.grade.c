/* 01-ring-or-tree.grade.c: times that are easy to compute: 1 s of latency, 1 byte/s. */
#include "tutorials/28-what-it-buys/exercises/01-ring-or-tree.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_28_01;

static const LinkCosts LINK = {.latency_s = 1, .bytes_per_s = 2};

static bool is(double got, double wanted) {
    return fabs(got - wanted) <= 1e-9 * wanted;
}

static void ring(Grade *grade) {
    for (int w = 0; w < 4; w++) {
        int devices = GRADE_WORLDS[w];
        double got = GRADE_CALL(grade, ring_s, LINK, devices, 61);
        double wanted = 2 * (devices - 1) * (1 + 30.5 / devices);
        GRADE_EXPECT(grade, devices > 1 || got == 0, "One device sends nothing, and it took %g s.",
                     got);
        if (is(got, wanted)) continue;
        GRADE_EXPECT(grade, !is(got, wanted / 2),
                     "The ring goes round twice: once to add, and once to hand out the sums.");
        GRADE_EXPECT(grade, !is(got, 1 + 2 * (devices - 1) * 30.5 / devices),
                     "The latency is paid in every round, and here it is paid once.");
        GRADE_EXPECT(grade, !is(got, 2 * (devices - 1) * (1 + 30.5)),
                     "In a round of the ring a device sends one part of W, and not all bytes.");
        GRADE_EXPECT(grade, !is(got, 2 * devices * (1 + 30.5 / devices)),
                     "W - 1 rounds bring a part past all devices, and here there is one more.");
        grade_miss(grade, "61 bytes in a ring of %d devices take %g s, not %g.", devices, wanted,
                   got);
    }
    double large = GRADE_CALL(grade, ring_s, LINK, 2, 1e10);
    GRADE_EXPECT(grade, is(large, 2 * (1 + 2.5e9)),
                 "10,000,000,000 bytes take %g s, not %g: an int ends at 2,147,483,647.",
                 2 * (1 + 2.5e9), large);
}

static void tree(Grade *grade) {
    static const int LEVELS[9] = {0, 0, 1, 2, 2, 3, 3, 3, 3};
    for (int devices = 1; devices <= 8; devices++) {
        double got = GRADE_CALL(grade, tree_s, LINK, devices, 61);
        double wanted = 2 * LEVELS[devices] * 31.5;
        if (is(got, wanted)) continue;
        GRADE_EXPECT(grade, devices > 2 || !is(got, wanted / 2),
                     "The sum must come down again: a tree is passed twice.");
        GRADE_EXPECT(grade, devices < 3 || got >= wanted,
                     "%d devices need %d levels: the logarithm is rounded up.", devices,
                     LEVELS[devices]);
        GRADE_EXPECT(grade, devices < 2 || !is(got, 2 * (LEVELS[devices] + 1) * 31.5),
                     "%d devices need %d levels, and not one more.", devices, LEVELS[devices]);
        grade_miss(grade, "61 bytes in a tree of %d devices take %g s, not %g.", devices, wanted,
                   got);
    }
    double many = GRADE_CALL(grade, tree_s, LINK, 4096, 61);
    GRADE_EXPECT(grade, is(many, 2 * 12 * 31.5), "4,096 devices take %g s, not %g.", 2 * 12 * 31.5,
                 many);
    double large = GRADE_CALL(grade, tree_s, LINK, 2, 1e10);
    GRADE_EXPECT(grade, is(large, 2 * (1 + 5e9)),
                 "10,000,000,000 bytes take %g s, not %g: an int ends at 2,147,483,647.",
                 2 * (1 + 5e9), large);
}

static void choice(Grade *grade) {
    const LinkCosts ethernet = {.latency_s = 20e-6, .bytes_per_s = 1.25e9};
    const LinkCosts far_away = {.latency_s = 1e-3, .bytes_per_s = 1.25e9};
    GRADE_EXPECT(grade, !GRADE_CALL(grade, tree_is_faster, ethernet, 8, 1e8),
                 "8 devices and 100 MB: the ring sends fewer bytes and wins.");
    GRADE_EXPECT(grade, GRADE_CALL(grade, tree_is_faster, ethernet, 8, 8),
                 "8 devices and 8 bytes: only rounds count, and the tree has 6 where the ring "
                 "has 14.");
    GRADE_EXPECT(grade, GRADE_CALL(grade, tree_is_faster, ethernet, 4096, 1e5),
                 "4,096 devices and 100 kB: 8,190 rounds of latency are longer than 24 of all "
                 "bytes.");
    GRADE_EXPECT(grade, !GRADE_CALL(grade, tree_is_faster, ethernet, 8, 1e5),
                 "8 devices and 100 kB: the ring takes 0.42 ms, and the tree 0.60 ms. No number of "
                 "bytes decides alone: the link and the devices count, too.");
    GRADE_EXPECT(grade, GRADE_CALL(grade, tree_is_faster, far_away, 8, 2e6),
                 "8 devices, 2 MB and a latency of 1 ms: the ring takes 16.8 ms, and the tree 15.6 "
                 "ms. No number of bytes decides alone: the link and the devices count, too.");
    GRADE_EXPECT(grade, !GRADE_CALL(grade, tree_is_faster, ethernet, 1, 1e5),
                 "One device: neither is faster than the other.");
}

const Grader grader_28_01 = {"28-what-it-buys/01-ring-or-tree",
                             {{"the ring", 4, NULL, ring},
                              {"the tree", 4, NULL, tree},
                              {"which of them", 2, "the ring", choice}}};
