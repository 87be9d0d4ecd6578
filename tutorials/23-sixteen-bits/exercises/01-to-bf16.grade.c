/* 01-to-bf16.grade.c: known bits. */
#include "tutorials/23-sixteen-bits/exercises/01-to-bf16.h"

#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_23_01;

typedef struct Case {
    uint32_t bits;
    uint16_t half;
    const char *sentence;
} Case;

static uint16_t answer(Grade *grade, uint32_t bits) {
    float numbers[3] = {1.0f, 0, 1.0f};
    uint16_t *halves = grade_fenced(grade, 4 * sizeof *halves);
    halves[3] = 0xabcd;
    memcpy(&numbers[1], &bits, sizeof bits);
    GRADE_RUN(grade, to_bf16, numbers, halves, 3);
    grade_out(grade, halves, 4 * sizeof *halves);
    GRADE_EXPECT(grade, halves[0] == 0x3f80 && halves[2] == 0x3f80,
                 "1 is 0x3f80 in bf16; the first number became 0x%04x and the last as 0x%04x.",
                 halves[0], halves[2]);
    GRADE_EXPECT(grade, halves[3] == 0xabcd, "Something was written behind the last half.");
    return halves[1];
}

static void judge(Grade *grade, const Case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint16_t got = answer(grade, cases[i].bits);
        const bool is_small = (cases[i].bits & 0x7f800000) == 0 && (cases[i].half & 0x7fff) != 0;
        GRADE_EXPECT(grade, !is_small || (got & 0x7fff) != 0,
                     "A number below 2^-126 became 0: bf16 has such numbers, too, and they round "
                     "as the others do. (0x%08x)",
                     cases[i].bits);
        GRADE_EXPECT(grade, got == cases[i].half, "%s (0x%08x is 0x%04x, and it became 0x%04x.)",
                     cases[i].sentence, cases[i].bits, cases[i].half, got);
    }
}

static void exact(Grade *grade) {
    static const char SENTENCE[] = "A number that fits into bf16 is its own upper half.";
    static const Case CASES[] = {{0x00000000, 0x0000, SENTENCE},
                                 {0xbf800000, 0xbf80, SENTENCE},
                                 {0x40490000, 0x4049, SENTENCE},
                                 {0x80000000, 0x8000, "Minus 0 has a sign, too."},
                                 {0x7f800000, 0x7f80, "Infinity stays infinite."},
                                 {0xff800000, 0xff80, "Infinity stays infinite."}};
    judge(grade, CASES, sizeof CASES / sizeof *CASES);
}

static void nearest(Grade *grade) {
    static const char CUT[] = "The lower half was cut off: that is always towards 0, and the "
                              "errors of many gradients add up.";
    static const char UP[] = "It was rounded away from 0, though the other neighbour is nearer.";
    static const Case CASES[] = {{0x3f80c000, 0x3f81, CUT},
                                 {0xc049ffff, 0xc04a, CUT},
                                 {0x3f804000, 0x3f80, UP},
                                 {0x3f807fff, 0x3f80, UP},
                                 {0x3f808001, 0x3f81, CUT}};
    judge(grade, CASES, sizeof CASES / sizeof *CASES);
}

static void ties(Grade *grade) {
    static const char UP[] = "A number in the middle goes to the neighbour whose last bit is 0, "
                             "and here it went up.";
    static const char DOWN[] = "A number in the middle goes to the neighbour whose last bit is 0, "
                               "and here it went down.";
    static const Case CASES[] = {{0x3f818000, 0x3f82, DOWN},
                                 {0x3f808000, 0x3f80, UP},
                                 {0xbf828000, 0xbf82, UP},
                                 {0xbf838000, 0xbf84, DOWN}};
    judge(grade, CASES, sizeof CASES / sizeof *CASES);
}

static void carries(Grade *grade) {
    static const char SENTENCE[] = "A carry runs from the mantissa into the exponent.";
    static const Case CASES[] = {{0x3fffffff, 0x4000, SENTENCE}, {0x7f7fffff, 0x7f80, SENTENCE},
                                 {0xff7fffff, 0xff80, SENTENCE}, {0xff7f8000, 0xff80, SENTENCE},
                                 {0x7f7f8000, 0x7f80, SENTENCE}, {0x3fff8000, 0x4000, SENTENCE},
                                 {0x0000ffff, 0x0001, SENTENCE}, {0x007fffff, 0x0080, SENTENCE}};
    judge(grade, CASES, sizeof CASES / sizeof *CASES);
}

static void not_a_number(Grade *grade) {
    static const uint32_t NANS[] = {0x7fc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof NANS / sizeof *NANS; i++) {
        uint16_t got = answer(grade, NANS[i]);
        GRADE_EXPECT(grade, (got & 0x7fff) != 0x7f80,
                     "A NaN became infinite: the bits that made it one were in the lower half.");
        GRADE_EXPECT(grade, (got & 0x7fff) > 0x7f80,
                     "A NaN became a number, 0x%04x: the carry ran through its exponent.", got);
    }
}

const Grader grader_23_01 = {"23-sixteen-bits/01-to-bf16",
                             {{"numbers that fit", 2, NULL, exact},
                              {"to the nearest", 3, "numbers that fit", nearest},
                              {"ties to even", 2, "to the nearest", ties},
                              {"carries", 1, "to the nearest", carries},
                              {"NaN", 2, "numbers that fit", not_a_number}}};
