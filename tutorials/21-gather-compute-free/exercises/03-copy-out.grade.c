/* 03-copy-out.grade.c: parameters whose rows do not divide by the ranks, or are fewer. */
#include "tutorials/21-gather-compute-free/exercises/03-copy-out.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_21_03;

enum { MOST = 4, MOST_FLOATS = 4096 };
#define NOTHING (-7777.0f)

typedef struct Shape {
    size_t rows, width;
} Shape;

static float number(size_t p, size_t row, size_t column) {
    return (float)(100000 * (p + 1) + 100 * row + column);
}

static size_t chunk_of(Shape shape, size_t world) {
    return (shape.rows + world - 1) / world;
}

// The numbers that the ranks send.
static void fill(float *gathered, const Shape *shapes, size_t count, size_t world) {
    for (size_t rank = 0; rank < world; rank++)
        for (size_t p = 0; p < count; p++)
            for (size_t i = 0; i < chunk_of(shapes[p], world) * shapes[p].width; i++) {
                size_t row = rank * chunk_of(shapes[p], world) + i / shapes[p].width;
                *gathered++ = row < shapes[p].rows ? number(p, row, i % shapes[p].width) : NOTHING;
            }
}

static void check_number(Grade *grade, Shape shape, size_t world, size_t p, size_t i, float got) {
    const size_t row = i / shape.width, chunk = chunk_of(shape, world);
    GRADE_EXPECT(grade, got != NOTHING,
                 "A number that means nothing is in parameter %zu, row %zu. A chunk takes the room "
                 "of c rows, also where a rank has fewer; the rest of the room is skipped.",
                 p, row);
    GRADE_EXPECT(grade,
                 got != 0 || i % (chunk * shape.width) < chunk * shape.width / 4 ||
                     row < shape.rows / world * world || shape.rows % world == 0,
                 "Rows of the last chunk are missing: c is rounded up. (%zu rows, %zu ranks)",
                 shape.rows, world);
    GRADE_EXPECT(grade, got != 0 || row < shape.rows / world * world,
                 "Rows of the last chunk are missing: c is rounded up. (%zu rows, %zu ranks)",
                 shape.rows, world);
    GRADE_EXPECT(grade, got != 0 || row >= chunk || i * 4 < chunk * shape.width,
                 "Only a quarter of a chunk was copied: memcpy counts bytes.");
    GRADE_EXPECT(grade, got != 0, "Rows of other ranks are missing, such as row %zu of %zu.", row,
                 shape.rows);
    GRADE_EXPECT(grade, (size_t)got / 100000 == p + 1,
                 "Parameter %zu has another parameter's numbers. The result has all chunks of rank "
                 "0, then all chunks of rank 1, and so on.",
                 p);
}

static void ask(Grade *grade, const Shape *shapes, size_t count, size_t world) {
    float gathered[MOST_FLOATS];
    WholeParameter parameters[MOST];
    for (size_t p = 0; p < count; p++)
        parameters[p] =
            (WholeParameter){shapes[p].rows, shapes[p].width,
                             grade_fenced(grade, shapes[p].rows * shapes[p].width * sizeof(float))};
    fill(gathered, shapes, count, world);
    GRADE_RUN(grade, copy_out, gathered, parameters, count, world);
    for (size_t p = 0; p < count; p++)
        grade_out(grade, parameters[p].whole, shapes[p].rows * shapes[p].width * sizeof(float));
    for (size_t p = 0; p < count; p++)
        for (size_t i = 0; i < shapes[p].rows * shapes[p].width; i++) {
            const float got = parameters[p].whole[i];
            const size_t row = i / shapes[p].width, column = i % shapes[p].width;
            check_number(grade, shapes[p], world, p, i, got);
            GRADE_EXPECT(grade, got == number(p, row, column),
                         "%zu ranks, parameter %zu: row %zu, column %zu has the number of row %zu, "
                         "column %zu. The rows are dealt out as torch.chunk does it, in chunks of "
                         "c, and a row has `width` floats.",
                         world, p, row, column, (size_t)got % 100000 / 100, (size_t)got % 100);
        }
}

static void equal_chunks(Grade *grade) {
    ask(grade, (Shape[]){{4, 3}}, 1, 1);
    ask(grade, (Shape[]){{4, 8}}, 1, 2);
    ask(grade, (Shape[]){{6, 8}, {3, 4}}, 2, 3);
}

static void a_rest(Grade *grade) {
    ask(grade, (Shape[]){{7, 8}}, 1, 3);
    ask(grade, (Shape[]){{7, 8}, {5, 4}}, 2, 2);
    ask(grade, (Shape[]){{10, 16}, {10, 1}, {11, 3}}, 3, 4);
}

static void ranks_without_rows(Grade *grade) {
    ask(grade, (Shape[]){{3, 2}, {1, 4}}, 2, 2);
    ask(grade, (Shape[]){{2, 5}, {9, 7}, {1, 1}, {6, 4}}, 4, 5);
    ask(grade, (Shape[]){{3, 8}, {0, 8}, {4, 2}}, 3, 7);
    ask(grade, (Shape[]){{1, 1}}, 0, 3);
}

const Grader grader_21_03 = {"21-gather-compute-free/03-copy-out",
                             {{"equal chunks", 3, NULL, equal_chunks},
                              {"a rest", 4, "equal chunks", a_rest},
                              {"ranks without rows", 3, "a rest", ranks_without_rows}}};
