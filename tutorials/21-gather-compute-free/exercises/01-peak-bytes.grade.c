/* 01-peak-bytes.grade.c: models whose parts have padding, with some units kept whole. */
#include "tutorials/21-gather-compute-free/exercises/01-peak-bytes.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_21_01;

enum { MOST = 6 };

typedef struct Model {
    size_t units, parameters[MOST];
    bool kept[MOST];
    size_t world;
} Model;

// The mistakes, each of which has a sentence for the student.
typedef enum Way {
    RIGHT,
    ROUNDED_DOWN,
    NOT_PADDED,
    CUT_AS_ONE,
    NO_GRADIENTS,
    ALL_WHOLE,
    NO_STATE,
    NOT_KEPT,
    KEPT_FOR_EVER,
    COUNTED_TWICE,
    WAYS
} Way;

static const char *const SENTENCES[WAYS] = {
    [ROUNDED_DOWN] = "The parts are rounded down: no rank has the last floats of a unit.",
    [NOT_PADDED] = "A whole unit is W parts long, and the parts are rounded up: it is longer than "
                   "its parameters.",
    [CUT_AS_ONE] = "Every unit is cut for itself, and rounded up for itself.",
    [NO_GRADIENTS] = "In backward the whole gradients are there besides the whole weights.",
    [ALL_WHOLE] = "Units are whole one at a time, not all together.",
    [NO_STATE] = "AdamW keeps two floats for each weight of the part, besides weight and gradient: "
                 "16 bytes.",
    [NOT_KEPT] = "A kept unit's whole weights are there until its own backward is over.",
    [KEPT_FOR_EVER] =
        "In the backward of a unit, the later units have completed theirs, and are freed.",
    [COUNTED_TWICE] = "A kept unit's weights are counted twice in its own backward."};

static size_t bytes_of_parts(const Model *m, Way way) {
    size_t parts = 0, all = 0, each = way == NO_STATE ? 8 : 16;
    for (size_t u = 0; u < m->units; u++) {
        all += m->parameters[u];
        parts += (m->parameters[u] + (way == ROUNDED_DOWN ? 0 : m->world - 1)) / m->world;
    }
    return each * (way == CUT_AS_ONE ? (all + m->world - 1) / m->world : parts);
}

static size_t whole_bytes(const Model *m, size_t u, Way way) {
    size_t share = (m->parameters[u] + (way == ROUNDED_DOWN ? 0 : m->world - 1)) / m->world;
    return way == NOT_PADDED ? 4 * m->parameters[u] : 4 * m->world * share;
}

static size_t peak(const Model *m, Way way) {
    size_t most = 0, sum = 0;
    for (size_t u = 0; u < m->units; u++) {
        size_t now = (way == NO_GRADIENTS ? 1 : 2) * whole_bytes(m, u, way);
        for (size_t v = 0; v < m->units && way != NOT_KEPT; v++) {
            bool there = way == KEPT_FOR_EVER ? v != u : way == COUNTED_TWICE ? v <= u : v < u;
            if (there && m->kept[v]) now += whole_bytes(m, v, way);
        }
        if (now > most) most = now;
        sum += 2 * whole_bytes(m, u, way);
    }
    return bytes_of_parts(m, way) + (way == ALL_WHOLE ? sum : most);
}

static void ask(Grade *grade, const Model *m) {
    const size_t right = peak(m, RIGHT);
    size_t got = GRADE_CALL(grade, fully_sharded_peak, m->parameters, m->kept, m->units, m->world);
    for (Way way = RIGHT + 1; way < WAYS; way++)
        GRADE_EXPECT(grade, got == right || got != peak(m, way), "%s (%zu ranks)", SENTENCES[way],
                     m->world);
    GRADE_EXPECT(grade, got == right,
                 "%zu units on %zu ranks, the first of %zu floats: %zu bytes, and not %zu.",
                 m->units, m->world, m->units ? m->parameters[0] : 0, right, got);
}

static void one_unit(Grade *grade) {
    ask(grade, &(Model){1, {100}, {false}, 1});
    ask(grade, &(Model){1, {100}, {false}, 4});
    ask(grade, &(Model){1, {101}, {false}, 4});
    ask(grade, &(Model){0, {0}, {false}, 4});
}

static void several_units(Grade *grade) {
    ask(grade, &(Model){2, {10, 7}, {false}, 2});
    ask(grade, &(Model){3, {16640, 32896, 1290}, {false}, 4});
    ask(grade, &(Model){4, {7, 9, 1001, 11}, {false}, 3});
    ask(grade, &(Model){5, {2, 3, 0, 1, 2}, {false}, 7});
}

static void kept_units(Grade *grade) {
    ask(grade, &(Model){3, {30, 50, 40}, {true, false, false}, 3});
    ask(grade, &(Model){3, {30, 50, 40}, {false, false, true}, 4});
    ask(grade, &(Model){4, {31, 50, 40, 17}, {true, true, true, true}, 4});
    ask(grade, &(Model){4, {31, 500, 40, 17}, {false, true, true, false}, 4});
    ask(grade, &(Model){6, {5, 5, 5, 5, 5, 5}, {true, true, true, true, true, true}, 2});
}

static void large(Grade *grade) {
    const Model m = {2, {600000000, 600000001}, {true, false}, 8};
    size_t got = GRADE_CALL(grade, fully_sharded_peak, m.parameters, m.kept, m.units, m.world);
    GRADE_EXPECT(grade, got == peak(&m, RIGHT),
                 "Two units of 600,000,000 floats on 8 ranks need %zu bytes, and not %zu. An int "
                 "ends at 2,147,483,647.",
                 peak(&m, RIGHT), got);
}

const Grader grader_21_01 = {"21-gather-compute-free/01-peak-bytes",
                             {{"one unit", 2, NULL, one_unit},
                              {"several units", 3, "one unit", several_units},
                              {"kept units", 4, "several units", kept_units},
                              {"large units", 1, "several units", large}}};
