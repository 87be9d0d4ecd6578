/* 01-busy-devices.grade.c: known cases first, then all small ones, compared with chunk_bounds. */
#include "tutorials/06-dp-costs/exercises/01-busy-devices.h"

#include "common/data/sampler.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_06_01;

static Occupation count(size_t rows, size_t devices) {
    Occupation counted = {0};
    for (size_t i = 0; i < devices; i++) {
        size_t begin, end;
        chunk_bounds(rows, devices, i, &begin, &end);
        counted.busy += begin < end;
        if (end - begin > counted.longest) counted.longest = end - begin;
    }
    return counted;
}

static void equal_chunks(Grade *grade) {
    Occupation got = GRADE_CALL(grade, occupation, 60, 4);
    GRADE_EXPECT(grade, got.busy == 4 && got.longest == 15,
                 "60 rows on 4 devices are 15 for each of the 4; yours: %zu devices, at most %zu "
                 "rows.",
                 got.busy, got.longest);
}

static void short_chunk(Grade *grade) {
    Occupation got = GRADE_CALL(grade, occupation, 10, 4); // 3, 3, 3, 1
    GRADE_EXPECT(grade, got.longest != 1,
                 "longest is the most rows that a device gets, and not the rows of the last one.");
    GRADE_EXPECT(grade, got.longest == 3,
                 "The longest chunk has ceil(rows / devices) rows: the division must round up. (10 "
                 "rows, 4 devices: 3, not %zu)",
                 got.longest);
    GRADE_EXPECT(grade, got.busy != 3,
                 "A device with a short chunk is busy, too: the number of chunks must be rounded "
                 "up. (10 rows, 4 devices: 3 + 3 + 3 + 1)");
    GRADE_EXPECT(grade, got.busy == 4, "10 rows on 4 devices keep 4 busy, not %zu.", got.busy);
}

static void idle_devices(Grade *grade) {
    Occupation got = GRADE_CALL(grade, occupation, 28, 8); // 4 each, for 7
    GRADE_EXPECT(grade, got.busy != 8 || GRADE_CALL(grade, occupation, 3, 8).busy != 8,
                 "All devices were counted, but the chunks may run out before the devices do.");
    GRADE_EXPECT(grade, got.busy != 8,
                 "One row for each device would keep more of them busy, but the cut does not "
                 "spread rows so. (28 rows on 8 devices: 4 for each of 7)");
    GRADE_EXPECT(grade, got.busy == 7, "28 rows on 8 devices keep 7 busy, not %zu.", got.busy);
}

static void every_case(Grade *grade) {
    for (size_t rows = 0; rows <= 70; rows++)
        for (size_t devices = 1; devices <= 9; devices++) {
            Occupation got = GRADE_CALL(grade, occupation, rows, devices);
            Occupation wanted = count(rows, devices);
            GRADE_EXPECT(grade, got.busy == wanted.busy && got.longest == wanted.longest,
                         "%zu rows on %zu devices: %zu busy, at most %zu rows; yours: %zu and %zu.",
                         rows, devices, wanted.busy, wanted.longest, got.busy, got.longest);
        }
    const size_t many[][2] = {{16777217, 1}, {33554435, 2}, {5000000000, 3}, {5000000000, 8}};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        Occupation got = GRADE_CALL(grade, occupation, many[i][0], many[i][1]);
        Occupation wanted = count(many[i][0], many[i][1]);
        GRADE_EXPECT(grade, got.busy == wanted.busy && got.longest == wanted.longest,
                     "Few rows are right, and many are not: an int ends at 2^31, and a float has "
                     "24 bits. (%zu rows on %zu devices: at most %zu rows, not %zu)",
                     many[i][0], many[i][1], wanted.longest, got.longest);
    }
}

const Grader grader_06_01 = {"06-dp-costs/01-busy-devices",
                             {{"equal chunks", 2, NULL, equal_chunks},
                              {"a short chunk", 3, "equal chunks", short_chunk},
                              {"idle devices", 3, "equal chunks", idle_devices},
                              {"every small case", 2, "idle devices", every_case}}};
