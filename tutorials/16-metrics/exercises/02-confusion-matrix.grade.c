/* 02-confusion-matrix.grade.c: a table computed by hand, with a different count of each mistake. */
#include "tutorials/16-metrics/exercises/02-confusion-matrix.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_16_02;

enum { MOST_RANKS = 5, CLASSES = 3, COUNT = CLASSES * CLASSES, MOST_ROWS = 40 };

typedef struct Scene {
    size_t rows[MOST_RANKS];
    double counts[MOST_RANKS][COUNT + 1]; // the last must not change
    size_t calls[MOST_RANKS];
    bool as_floats[MOST_RANKS]; // a collective had type PG_F32
} Scene;

// The row's index in the table: truth * CLASSES + answer.
static size_t place(int rank, size_t row) {
    return ((size_t)rank * 4 + row * row + row / 3) % COUNT;
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    int r = rank->rank;
    int64_t truths[MOST_ROWS], answers[MOST_ROWS];
    for (size_t row = 0; row < s->rows[r]; row++) {
        truths[row] = (int64_t)(place(r, row) / CLASSES);
        answers[row] = (int64_t)(place(r, row) % CLASSES);
    }
    for (size_t i = 0; i <= COUNT; i++)
        s->counts[r][i] = 1000; // an output: its old value is arbitrary
    AnsweredRows own = {s->rows[r], truths, answers, CLASSES};
    rank->status =
        STUDENT(rank->grade, confusion_matrix)(rank->group, &own, s->counts[r], &rank->err);
    s->calls[r] = watch_calls(rank->log);
    for (size_t e = 0; e < rank->log->count; e++)
        if (rank->log->events[e].kind != WATCH_WAIT &&
            rank->log->events[e].collective.type == PG_F32)
            s->as_floats[r] = true;
}

static void table_of(const Scene *s, int first, int end, double *table) {
    for (size_t i = 0; i < COUNT; i++) table[i] = 0;
    for (int r = first; r < end; r++)
        for (size_t row = 0; row < s->rows[r]; row++) table[place(r, row)]++;
}

static bool equals(const double *a, const double *b, double scale, double more) {
    for (size_t i = 0; i < COUNT; i++)
        if (a[i] - (b[i] * scale + more) > 1e-9 || a[i] - (b[i] * scale + more) < -1e-9)
            return false;
    return true;
}

static bool is_transposed(const double *a, const double *b) {
    for (size_t i = 0; i < COUNT; i++)
        if (a[i] != b[i % CLASSES * CLASSES + i / CLASSES]) return false;
    return true;
}

// Whether each rank has contributed 1 where it has rows.
static bool is_marked(const double *got, const Scene *s, int world) {
    double sum[COUNT] = {0}, own[COUNT];
    for (int r = 0; r < world; r++) {
        table_of(s, r, r + 1, own);
        for (size_t i = 0; i < COUNT; i++) sum[i] += own[i] > 0;
    }
    return equals(got, sum, 1, 0);
}

static void check(Grade *grade, Scene *s, int world) {
    double all[COUNT], own[COUNT];
    grade_ranks(grade, world, run_rank, s);
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, s->counts[r][COUNT] == 1000,
                     "Something was written behind the table: %d classes have %d counts.", CLASSES,
                     COUNT);
    table_of(s, 0, world, all);
    for (int r = world - 1; r >= 0; r--) {
        table_of(s, r, r + 1, own);
        const double *got = s->counts[r];
        GRADE_EXPECT(grade, !s->as_floats[r],
                     "The counts are doubles and were added as floats: PG_F64. A float counts to "
                     "16,777,216.");
        if (equals(got, all, 1, 0)) continue;
        GRADE_EXPECT(grade, !equals(got, all, 1, 1000) && !equals(got, all, 1, 1000 * world),
                     "What was in the table before was counted, too.");
        GRADE_EXPECT(grade, world > 1 || got[COUNT - 1] < 1000 || got[0] >= 1000,
                     "The table was emptied in part only: memset counts bytes, and a double has "
                     "eight.");
        GRADE_EXPECT(grade,
                     !equals(got, own, 1, 0) || equals(s->counts[0], own, 1, 0) ||
                         !equals(s->counts[0], all, 1, 0),
                     "Only rank 0 has the table of all rows.");
        GRADE_EXPECT(grade, !is_marked(got, s, world),
                     "A count went up to 1 in each rank, however many rows there were: ++ counts, "
                     "= 1 marks.");
        GRADE_EXPECT(grade, !equals(got, own, 1, 0),
                     "Each rank has the table of its own rows: nothing was added up.");
        GRADE_EXPECT(grade, !equals(got, all, 1.0 / world, 0),
                     "The tables were averaged; these are counts of rows, and to be added.");
        GRADE_EXPECT(grade, !is_transposed(got, all),
                     "The table is transposed: a row is a truth, a column an answer.");
        grade_miss(grade, "%d ranks: rank %d has %g rows of class 0 that were taken for 1, not %g.",
                   world, r, got[1], all[1]);
    }
}

static void alone(Grade *grade) {
    Scene s = {.rows = {7}};
    check(grade, &s, 1);
}

static void run_two_classes(GradeRank *rank) {
    const int64_t truths[2] = {0, 1}, answers[2] = {1, 1};
    const AnsweredRows own = {2, truths, answers, 2};
    double counts[COUNT];
    for (size_t i = 0; i < COUNT; i++) counts[i] = 1000;
    rank->status = STUDENT(rank->grade, confusion_matrix)(rank->group, &own, counts, &rank->err);
    for (size_t i = 4; i < COUNT; i++)
        GRADE_EXPECT(rank->grade, counts[i] == 1000,
                     "Something was written behind the table: 2 classes have 4 counts.");
    GRADE_EXPECT(rank->grade, counts[1] == 2 && counts[3] == 2 && counts[0] == 0 && counts[2] == 0,
                 "2 classes on 2 ranks: the table is 0 2 0 2, and not %g %g %g %g.", counts[0],
                 counts[1], counts[2], counts[3]);
}

// More classes than a fixed array may hold.
static void run_many_classes(GradeRank *rank) {
    enum { MANY = 60 };
    static double counts[MANY * MANY];
    const int64_t truths[1] = {MANY - 1}, answers[1] = {1};
    const AnsweredRows own = {1, truths, answers, MANY};
    rank->status = STUDENT(rank->grade, confusion_matrix)(rank->group, &own, counts, &rank->err);
    GRADE_EXPECT(
        rank->grade, counts[(MANY - 1) * MANY + 1] == rank->world,
        "%d classes on %d ranks: rank %d has the count %g, not %d. There may be any number "
        "of classes.",
        MANY, rank->world, rank->rank, counts[(MANY - 1) * MANY + 1], rank->world);
}

static void several(Grade *grade) {
    Scene two = {.rows = {8, 6}}, three = {.rows = {5, 9, 2}}, five = {.rows = {3, 1, 4, 1, 5}};
    check(grade, &two, 2);
    check(grade, &three, 3);
    check(grade, &five, 5);
    grade_ranks(grade, 2, run_two_classes, &(char){0});
    grade_ranks(grade, 2, run_many_classes, &(char){0});
}

static void empty_shares(Grade *grade) {
    Scene s = {.rows = {4, 0, 3}}, none = {.rows = {0, 0}};
    check(grade, &s, 3);
    check(grade, &none, 2);
}

static void one_collective(Grade *grade) {
    Scene s = {.rows = {4, 3}};
    grade_ranks(grade, 2, run_rank, &s);
    GRADE_EXPECT(grade, s.calls[0] == 1,
                 "The whole table fits into one collective. (%zu calls for %d classes)", s.calls[0],
                 CLASSES);
    grade_broken_ranks(grade, 2, run_rank, &s);
}

const Grader grader_16_02 = {"16-metrics/02-confusion-matrix",
                             {{"one rank", 2, NULL, alone},
                              {"two, three and five ranks", 4, "one rank", several},
                              {"a rank without rows", 2, "two, three and five ranks", empty_shares},
                              {"one collective", 2, "two, three and five ranks", one_collective}}};
