/* 03-layers-per-unit.grade.c: links and limits at which each mistake chooses a different unit. */
#include "tutorials/22-gather-ahead/exercises/03-layers-per-unit.h"

#include <stdbool.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_22_03;

typedef enum Way {
    RIGHT,
    NO_LATENCY,
    ONE_LATENCY,
    NOT_HIDDEN,
    ALL_HIDDEN,
    ALWAYS_TWO,
    LARGEST,
    WAYS
} Way;

static const char *const SENTENCES[WAYS] = {
    [NO_LATENCY] = "Small units pay a latency each: without it the smallest unit is always the "
                   "best.",
    [ONE_LATENCY] = "There are W - 1 rounds, and each has its latency.",
    [NOT_HIDDEN] = "The next unit is gathered while one computes: the longer of the two counts, "
                   "and not the sum.",
    [ALL_HIDDEN] = "The first all-gather is waited for: it hides behind nothing.",
    [ALWAYS_TWO] = "If all layers are one unit, there is no second one: two arrays are whole, and "
                   "not four.",
    [LARGEST] = "Two units are equally fast: of equal ones the smallest is wanted."};

static double forward_time(UnitCosts c, size_t k, Way way) {
    const double rounds = (double)(c.world - 1), compute = (double)k * c.compute_s;
    const double bytes = 4.0 * (double)k * (double)c.floats / (double)c.world;
    const double latency = way == NO_LATENCY                  ? 0
                           : way == ONE_LATENCY && rounds > 0 ? c.latency_s / rounds
                                                              : c.latency_s;
    const double gather = rounds * (latency + bytes / c.bytes_per_s);
    const double longer = way == NOT_HIDDEN  ? gather + compute
                          : gather > compute ? gather
                                             : compute;
    return (way == ALL_HIDDEN ? 0 : gather) + (double)(c.layers / k - 1) * longer + compute;
}

static bool fits(UnitCosts c, size_t k, Way way) {
    const size_t arrays = k == c.layers && way != ALWAYS_TWO ? 2 : 4;
    return arrays * 4 * k * c.floats <= c.limit_bytes;
}

static size_t choose(UnitCosts c, Way way) {
    size_t best = 0;
    for (size_t k = 1; k <= c.layers; k++) {
        if (c.layers % k != 0 || !fits(c, k, way)) continue;
        const double now = forward_time(c, k, way);
        const double before = best ? forward_time(c, best, way) : 0;
        if (best == 0 || now < before || (way == LARGEST && now <= before)) best = k;
    }
    return best;
}

static void ask(Grade *grade, UnitCosts c) {
    const size_t right = choose(c, RIGHT);
    size_t got = GRADE_CALL(grade, layers_per_unit, c);
    GRADE_EXPECT(grade, got == 0 || (got <= c.layers && c.layers % got == 0),
                 "%zu does not divide %zu layers.", got, c.layers);
    GRADE_EXPECT(grade, got == 0 || fits(c, got, RIGHT),
                 "A unit of %zu layers does not fit: two units' weights and gradients are whole at "
                 "a time, %zu bytes, and the limit is %zu.",
                 got, 16 * got * c.floats, c.limit_bytes);
    for (Way way = RIGHT + 1; way < WAYS; way++)
        GRADE_EXPECT(grade, got == right || got != choose(c, way), "%s (%zu layers)",
                     SENTENCES[way], c.layers);
    GRADE_EXPECT(grade, got == right,
                 "%zu layers of %zu floats on %zu ranks, latency %g s, %g bytes a second: units of "
                 "%zu layers, and not of %zu.",
                 c.layers, c.floats, c.world, c.latency_s, c.bytes_per_s, right, got);
}

enum { NO_LIMIT = 1000000000 };

static void times(Grade *grade) {
    // layers, floats, world, compute, latency, bytes/s, limit
    ask(grade, (UnitCosts){12, 1000, 1, 1, 1, 4000, NO_LIMIT});
    ask(grade, (UnitCosts){12, 1000, 4, 1, 0.5, 4000, NO_LIMIT});
    ask(grade, (UnitCosts){12, 1000, 4, 4, 1, 1000, NO_LIMIT});
    ask(grade, (UnitCosts){24, 1000, 8, 2, 0.3, 8000, NO_LIMIT});
    ask(grade, (UnitCosts){24, 1000, 2, 8, 4, 16000, NO_LIMIT});
    ask(grade, (UnitCosts){30, 1000, 5, 1, 0.75, 16000, NO_LIMIT});
    ask(grade, (UnitCosts){16, 1000, 3, 4, 2, 4000, NO_LIMIT});
    ask(grade, (UnitCosts){16, 1000, 5, 6, 2, 32000, NO_LIMIT});
}

static void equal_times(Grade *grade) {
    ask(grade, (UnitCosts){4, 1000, 2, 4, 4, 2000, NO_LIMIT});
    ask(grade, (UnitCosts){6, 0, 1, 1, 1, 1000, NO_LIMIT});
}

static void limits(Grade *grade) {
    ask(grade, (UnitCosts){12, 1000, 4, 1, 8, 4000, 16 * 1000 * 3});
    ask(grade, (UnitCosts){12, 1000, 4, 1, 8, 4000, 16 * 1000 * 4 - 1});
    ask(grade, (UnitCosts){12, 1000, 4, 1, 8, 4000, 8 * 1000 * 12});
    ask(grade, (UnitCosts){12, 1000, 4, 1, 8, 4000, 8 * 1000 * 12 - 1});
    ask(grade, (UnitCosts){12, 1000, 4, 1, 8, 4000, 16 * 1000 - 1});
    ask(grade, (UnitCosts){1, 1000, 4, 1, 8, 4000, 8 * 1000});
}

static void large(Grade *grade) {
    const UnitCosts c = {8, 536870912, 8, 0.01, 1, 1e11, 16UL * 536870912 * 2};
    size_t got = GRADE_CALL(grade, layers_per_unit, c);
    GRADE_EXPECT(grade, got == choose(c, RIGHT),
                 "8 layers of 536,870,912 floats: units of %zu layers, and not of %zu. An int ends "
                 "at 2,147,483,647.",
                 choose(c, RIGHT), got);
}

const Grader grader_22_03 = {"22-gather-ahead/03-layers-per-unit",
                             {{"times", 4, NULL, times},
                              {"equal times", 2, "times", equal_times},
                              {"limits", 3, "times", limits},
                              {"large layers", 1, "limits", large}}};
