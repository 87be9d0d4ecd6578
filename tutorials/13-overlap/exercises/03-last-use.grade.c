/* 03-last-use.grade.c: backwards that were written down by hand. */
#include "tutorials/13-overlap/exercises/03-last-use.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_13_03;

enum { MOST = 8 };

typedef struct Case {
    size_t parameters;
    bool frozen[MOST];
    size_t count, additions[MOST];
    size_t complete, order[MOST];
} Case;

static bool contains(const size_t *numbers, size_t count, size_t number) {
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number) return true;
    return false;
}

// Explains parameters that are listed wrongly, or twice.
static void check_members(Grade *grade, const Case *c, const size_t *got, size_t complete) {
    for (size_t i = 0; i < complete && i < MOST; i++) {
        GRADE_EXPECT(grade, got[i] < c->parameters, "There is no parameter %zu.", got[i]);
        GRADE_EXPECT(grade, !c->frozen[got[i]],
                     "A frozen parameter never becomes complete: it has no gradient. (%zu)",
                     got[i]);
        GRADE_EXPECT(grade, contains(c->additions, c->count, got[i]),
                     "A parameter that was not used never becomes complete, and was put at the "
                     "end. (%zu)",
                     got[i]);
        GRADE_EXPECT(grade, !contains(got, i, got[i]),
                     "A shared parameter was called complete twice: once for each of its uses. "
                     "(%zu)",
                     got[i]);
    }
}

static void check(Grade *grade, const Case *c, const char *sentence) {
    size_t *got = grade_fenced(grade, 2 * MOST * sizeof *got);
    for (size_t i = 0; i < 2 * MOST; i++) got[i] = 99;
    size_t complete =
        GRADE_CALL(grade, completion_order, c->additions, c->count, c->frozen, c->parameters, got);
    grade_out(grade, got, 2 * MOST * sizeof *got);
    for (size_t i = c->parameters; i < 2 * MOST; i++)
        GRADE_EXPECT(grade, got[i] == 99,
                     "order has room for %zu parameters, and more was written: there may be more "
                     "additions than that.",
                     c->parameters);
    check_members(grade, c, got, complete);
    GRADE_EXPECT(grade, complete == c->complete, "%zu gradients become complete, not %zu.",
                 c->complete, complete);
    for (size_t i = 0; i < complete; i++)
        GRADE_EXPECT(grade, got[i] == c->order[i],
                     "%s (number %zu to become complete is %zu, and you have %zu)", sentence, i,
                     c->order[i], got[i]);
}

static void once_each(Grade *grade) {
    const Case layers = {3, {0}, 3, {2, 1, 0}, 3, {2, 1, 0}};
    const Case crossed = {4, {0}, 4, {3, 1, 2, 0}, 4, {3, 1, 2, 0}};
    const char *sentence =
        "This is the reverse order of registration; the order of backward's additions counts.";
    check(grade, &layers, "One layer after the other.");
    check(grade, &crossed, sentence);
}

// Each of many parameters is used once, and the first one at the end once more.
static void large(Grade *grade) {
    enum { MANY = 20011 };
    static size_t additions[MANY + 1], order[MANY];
    static const bool none_frozen[MANY];
    for (size_t i = 0; i < MANY; i++) additions[i] = MANY - 1 - i;
    additions[MANY] = MANY - 1;
    size_t got = GRADE_CALL(grade, completion_order, additions, MANY + 1, none_frozen, MANY, order);
    GRADE_OUT(grade, order);
    GRADE_EXPECT(grade, got == MANY && order[0] == MANY - 2 && order[MANY - 1] == MANY - 1,
                 "Of %d parameters that are used, %zu become complete in your order, from %zu to "
                 "%zu.",
                 MANY, got, order[0], order[MANY - 1]);
}

static void shared(Grade *grade) {
    const Case twice = {3, {0}, 4, {0, 2, 1, 0}, 3, {2, 1, 0}};
    const Case tangled = {4, {0}, 8, {1, 3, 1, 0, 3, 2, 0, 1}, 4, {3, 2, 0, 1}};
    const char *sentence =
        "A shared parameter was called complete at its first addition: half of it is missing.";
    check(grade, &twice, sentence);
    check(grade, &tangled, sentence);
    large(grade);
}

static void frozen(Grade *grade) {
    const Case one = {4, {false, false, true}, 5, {3, 0, 2, 1, 0}, 3, {3, 1, 0}};
    const Case twice = {4, {true, true}, 5, {3, 1, 2, 3, 0}, 2, {2, 3}};
    check(grade, &one, "The order in the task is 3 1 0.");
    check(grade, &twice, "Parameters 0 and 1 are frozen.");
}

static void unused(Grade *grade) {
    const Case one = {5, {0}, 3, {4, 2, 0}, 3, {4, 2, 0}};
    const Case none = {2, {0}, 0, {0}, 0, {0}};
    check(grade, &one, "Two of five parameters are not used.");
    check(grade, &none, "Nothing was used.");
}

const Grader grader_13_03 = {"13-overlap/03-last-use",
                             {{"each used once", 3, NULL, once_each},
                              {"shared parameters", 3, "each used once", shared},
                              {"a frozen parameter", 2, "each used once", frozen},
                              {"parameters that are not used", 2, "each used once", unused}}};
