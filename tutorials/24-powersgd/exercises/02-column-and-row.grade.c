/* 02-column-and-row.grade.c: small matrices whose column and row are computed here in doubles,
 * correctly, and with each common mistake.
 */
#include "tutorials/24-powersgd/exercises/02-column-and-row.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_24_02;

enum { MOST_RANKS = 5, STEPS = 3, MOST = 15 };

typedef enum Slip {
    RIGHT,
    OWN_COLUMN,
    OWN_ROW,
    LENGTH_OF_EACH,
    NO_LENGTH,
    SQUARED_LENGTH,
    ROW_DIVIDED,
    OLD_ROW,
    ROW_ADDED,
    ROW_SUMMED,
    SLIPS
} Slip;

static const char *const SENTENCES[SLIPS] = {
    [OWN_COLUMN] =
        "The product has a column of one rank's own: the columns must be averaged before "
        "the row is computed.",
    [OWN_ROW] = "The product has a row of one rank's own: the rows must be averaged, too.",
    [LENGTH_OF_EACH] = "Each rank has divided its own column by its length, before the all-reduce: "
                       "the mean of these is not the column of the mean gradient.",
    [NO_LENGTH] =
        "The column was not divided by its length: the product is too large by the square "
        "of it.",
    [SQUARED_LENGTH] =
        "The column was divided by the sum of its squares: its length is the root of "
        "that.",
    [ROW_DIVIDED] = "The row was divided by its length, too: that is where the gradient's size is.",
    [OLD_ROW] = "The product was made with the old row; the new one is nearer.",
    [ROW_ADDED] = "The new row was added to the old one: it replaces it.",
    [ROW_SUMMED] = "The row is the sum over the ranks: the gradient is the mean."};

typedef struct Scene {
    size_t n, m;
    int zero_step;                           // in this step all gradients are 0; -1: in none
    float products[MOST_RANKS][STEPS][MOST]; // the student's results
    float rows[MOST_RANKS][STEPS][MOST];
    size_t calls[MOST_RANKS], bytes[MOST_RANKS];
} Scene;

static float number(int rank, size_t i, size_t j) {
    return (float)((3 * i + 5 * j + 7 * i * j) % 11) - 3.0f +
           (float)rank * (float)((2 * i + 3 * j + i * i) % 5);
}

static void run_rank(GradeRank *rank) {
    Scene *s = rank->context;
    const size_t n = s->n, m = s->m;
    float *column = grade_fenced(rank->grade, n * sizeof *column);
    float *row = grade_fenced(rank->grade, m * sizeof *row);
    for (size_t i = 0; i < n; i++) column[i] = -7;
    for (size_t j = 0; j < m; j++) row[j] = (float)(j + 1);
    for (int step = 0; step < STEPS && rank->status == 0; step++) {
        float *g = grade_fenced(rank->grade, n * m * sizeof *g);
        for (size_t i = 0; i < n * m && step != s->zero_step; i++)
            g[i] = number(rank->rank, i / m, i % m);
        rank->status =
            STUDENT(rank->grade, send_as_product)(rank->group, g, n, m, column, row, &rank->err);
        memcpy(s->products[rank->rank][step], g, n * m * sizeof *g);
        memcpy(s->rows[rank->rank][step], row, m * sizeof *row);
    }
    s->calls[rank->rank] = watch_calls(rank->log);
    for (size_t i = 0; i < rank->log->count; i++)
        s->bytes[rank->rank] += rank->log->events[i].bytes;
}

static void divide(double *numbers, size_t count, bool is_squared) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += numbers[i] * numbers[i];
    for (size_t i = 0; i < count; i++) numbers[i] /= is_squared ? sum : sqrt(sum);
}

// The mean column of `ranks` ranks, from `first` on.
static void column_of(const Scene *s, int first, int ranks, const double *row, Slip slip,
                      double *column) {
    double own[MOST];
    for (size_t i = 0; i < s->n; i++) column[i] = 0;
    for (int r = first; r < first + ranks; r++) {
        for (size_t i = 0; i < s->n; i++) {
            own[i] = 0;
            for (size_t j = 0; j < s->m; j++) own[i] += (double)number(r, i, j) * row[j];
        }
        if (slip == LENGTH_OF_EACH) divide(own, s->n, false);
        for (size_t i = 0; i < s->n; i++) column[i] += own[i] / ranks;
    }
    if (slip != NO_LENGTH && slip != LENGTH_OF_EACH) divide(column, s->n, slip == SQUARED_LENGTH);
}

// A step of `world` ranks, as rank `rank` would see it with this mistake: row [m] becomes the next.
static void compute(const Scene *s, int world, int rank, Slip slip, double *row, double *product) {
    double column[MOST], old[MOST];
    const bool own = slip == OWN_ROW;
    memcpy(old, row, s->m * sizeof *old);
    column_of(s, 0, world, old, slip, column);
    for (size_t j = 0; j < s->m; j++) row[j] = slip == ROW_ADDED ? old[j] : 0;
    for (int r = own ? rank : 0; r < (own ? rank + 1 : world); r++) {
        if (slip == OWN_COLUMN) column_of(s, r, 1, old, slip, column);
        for (size_t j = 0; j < s->m; j++)
            for (size_t i = 0; i < s->n; i++)
                row[j] +=
                    column[i] * (double)number(r, i, j) / (own || slip == ROW_SUMMED ? 1 : world);
    }
    if (slip == OWN_COLUMN) column_of(s, rank, 1, old, slip, column);
    if (slip == ROW_DIVIDED) divide(row, s->m, false);
    for (size_t i = 0; i < s->n * s->m; i++)
        product[i] = column[i / s->m] * (slip == OLD_ROW ? old[i % s->m] : row[i % s->m]);
}

static bool is(const float *got, const double *wanted, size_t count) {
    double most = 1;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs(wanted[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - wanted[i]) < 1e-4 * most)) return false;
    return true;
}

static bool is_mean(const Scene *s, const float *got, int first, int ranks) {
    double mean[MOST] = {0};
    for (int r = first; r < first + ranks; r++)
        for (size_t i = 0; i < s->n * s->m; i++)
            mean[i] += (double)number(r, i / s->m, i % s->m) / ranks;
    return is(got, mean, s->n * s->m);
}

static void check_product(Grade *grade, const Scene *s, int world, int rank, int step,
                          const double *before) {
    const float *got = s->products[rank][step];
    double row[MOST], product[MOST], wrong[MOST];
    memcpy(row, before, sizeof row);
    compute(s, world, rank, RIGHT, row, product);
    if (is(got, product, s->n * s->m)) return;
    for (int slip = RIGHT + 1; slip < SLIPS; slip++) {
        memcpy(row, before, sizeof row);
        compute(s, world, rank, (Slip)slip, row, wrong);
        GRADE_EXPECT(grade, !is(got, wrong, s->n * s->m), "%s", SENTENCES[slip]);
    }
    GRADE_EXPECT(grade, !is_mean(s, got, rank, 1), "The gradient is as it was.");
    GRADE_EXPECT(grade, !is_mean(s, got, 0, world),
                 "This is the whole mean gradient, and not a column times a row.");
    for (size_t i = 0; i < s->n * s->m; i++)
        GRADE_EXPECT(grade, fabs(got[i] - product[i]) < 1e-4 * (1 + fabs(product[i])),
                     "%d ranks, step %d: number (%zu, %zu) of the product is %g, and should be %g.",
                     world, step, i / s->m, i % s->m, (double)got[i], product[i]);
}

static void first_steps(Grade *grade, Scene *s, int world, int steps) {
    grade_ranks(grade, world, run_rank, s);
    for (int rank = world - 1; rank >= 0; rank--) {
        double row[MOST], product[MOST];
        for (size_t j = 0; j < s->m; j++) row[j] = (double)(j + 1);
        for (int step = 0; step < steps; step++) {
            const float *got = s->rows[rank][step];
            check_product(grade, s, world, rank, step, row);
            GRADE_EXPECT(grade, steps == 1 || s->m == 1 || step > 0 || got[1] != 2.0f,
                         "The row is as it was before the call: the next call begins with the new "
                         "one.");
            compute(s, world, rank, RIGHT, row, product);
            GRADE_EXPECT(grade, steps == 1 || is(got, row, s->m),
                         "The product is right, and the row that is left for the next call is "
                         "not.");
        }
    }
}

static void two_ranks(Grade *grade) {
    static Scene high, wide;
    high = (Scene){.n = 5, .m = 3, .zero_step = -1};
    wide = (Scene){.n = 3, .m = 5, .zero_step = -1};
    first_steps(grade, &wide, 2, 1);
    first_steps(grade, &high, 2, 1);
}

// Larger than a fixed array may be: all ones on rank 0 and threes on rank 1.
static void run_large(GradeRank *rank) {
    enum { N = 70, M = 3000 };
    float *g = grade_fenced(rank->grade, sizeof(float) * N * M);
    float *column = grade_fenced(rank->grade, sizeof(float) * N);
    float *row = grade_fenced(rank->grade, sizeof(float) * M);
    for (size_t i = 0; i < (size_t)N * M; i++) g[i] = (float)(2 * rank->rank + 1);
    for (size_t j = 0; j < M; j++) row[j] = 1;
    rank->status =
        STUDENT(rank->grade, send_as_product)(rank->group, g, N, M, column, row, &rank->err);
    for (size_t i = 0; i < (size_t)N * M && rank->status == 0; i++)
        GRADE_EXPECT(rank->grade, fabsf(g[i] - 2) < 1e-2f,
                     "A matrix of %d x %d, whose numbers have the mean 2: number %zu is %g.", N, M,
                     i, (double)g[i]);
}

static void all_worlds(Grade *grade) {
    static Scene s;
    for (int w = 0; w < 4; w++) {
        s = (Scene){.n = w == 1 ? 1 : 5, .m = w == 3 ? 1 : 3, .zero_step = -1};
        first_steps(grade, &s, GRADE_WORLDS[w], 1);
    }
    grade_ranks(grade, 2, run_large, &(char){0});
    grade_broken_ranks(grade, 2, run_rank, &s);
}

static void next_steps(Grade *grade) {
    static Scene s;
    s = (Scene){.n = 3, .m = 5, .zero_step = -1};
    first_steps(grade, &s, 3, STEPS);
}

static void zeros(Grade *grade) {
    static Scene s;
    s = (Scene){.n = 3, .m = 4, .zero_step = 0};
    grade_ranks(grade, 2, run_rank, &s);
    for (size_t i = 0; i < s.n * s.m; i++) {
        GRADE_EXPECT(grade, !isnan(s.products[0][0][i]),
                     "All gradients are 0, and so is the length of the column: 0 / 0 is NaN, and "
                     "so is the product.");
        GRADE_EXPECT(grade, s.products[0][0][i] == 0,
                     "All gradients are 0, and number %zu of the product is %g.", i,
                     (double)s.products[0][0][i]);
    }
    for (size_t j = 0; j < s.m; j++)
        GRADE_EXPECT(grade, s.rows[0][0][j] == (float)(j + 1),
                     "All gradients were 0, and the row has changed: from a row of zeros, every "
                     "later product is 0.");
}

static void bytes(Grade *grade) {
    static Scene s;
    s = (Scene){.n = 3, .m = 5, .zero_step = -1};
    grade_ranks(grade, 3, run_rank, &s);
    const size_t most = STEPS * (s.n + s.m) * sizeof(float);
    GRADE_EXPECT(grade, s.bytes[0] <= most,
                 "%zu bytes were sent in %d calls; a column of 3 and a row of 5 floats are %zu.",
                 s.bytes[0], STEPS, most);
    GRADE_EXPECT(grade, s.calls[0] == 2 * (size_t)STEPS,
                 "%zu collectives in %d calls: two in each are enough.", s.calls[0], STEPS);
}

const Grader grader_24_02 = {
    "24-powersgd/02-column-and-row",
    {{"a product on two ranks", 4, NULL, two_ranks},
     {"one, three and five ranks", 2, "a product on two ranks", all_worlds},
     {"the next calls", 2, "a product on two ranks", next_steps},
     {"gradients of zeros", 1, "a product on two ranks", zeros},
     {"bytes", 1, "a product on two ranks", bytes}}};
