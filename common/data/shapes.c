/* shapes.c: generated images with a label for every pixel: "shapes[:HxW[@COUNT]]".
 *
 * One to three circles, rectangles and triangles of random positions, sizes and colours overlap on
 * a background of one colour, with noise added. A pixel's class is the kind of the uppermost shape,
 * 0 for the background. Colours are independent of the classes, so a network has to learn the form.
 * The outlines have LABEL_IGNORE, as in hand-labelled data, where they are uncertain. The test set
 * has COUNT / 5 samples, at least one.
 *
 * A sample is a pure function of (seed, index, H, W), so all ranks generate the same set, and a
 * larger COUNT extends a smaller one.
 *
 * Positions and sizes are in pixels, colours in [0, 1] until the noise has been added.
 */
#include <math.h>

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/data/formats.h"

enum { CHANNELS = 3, MAX_SHAPES = 3, MIN_SIDE = 8, MAX_SIDE = 4096 };
// Indices of a sample's random numbers. The eight of shape s begin at
// DRAW_SHAPES (1 + s).
enum { DRAW_COUNT, DRAW_BACKGROUND, DRAW_SHAPES = 8, DRAWS = DRAW_SHAPES * (1 + MAX_SHAPES) };
static const float NOISE = 0.05f; // standard deviation
static const size_t MAX_PIXELS = (size_t)1 << 28;
// Number of the first test sample, for any size of the training set.
static const size_t TEST_FIRST = (size_t)1 << 32;

typedef struct Shape {
    int kind;
    float x, y;           // the centre
    float radius, narrow; // narrow: the sides of a rectangle, the base of a triangle
    float color[CHANNELS];
} Shape;

// The drawing of one sample.
typedef struct Drawing {
    uint64_t seed;
    size_t number, height, width;
} Drawing;

static float draw_number(const Drawing *d, size_t which, float low, float high) {
    return rng_uniform(d->seed, RNG_STREAM_SHAPES, d->number * DRAWS + which, low, high);
}

static Shape draw_shape(const Drawing *d, size_t s, const float background[CHANNELS]) {
    size_t first = DRAW_SHAPES * (1 + s);
    float h = (float)d->height, w = (float)d->width, side = fminf(h, w);
    Shape shape = {.kind = SHAPES_CIRCLE +
                           (int)draw_number(d, first, 0, SHAPES_CLASSES - SHAPES_CIRCLE),
                   .x = draw_number(d, first + 1, 0.15f * w, 0.85f * w),
                   .y = draw_number(d, first + 2, 0.15f * h, 0.85f * h),
                   .radius = draw_number(d, first + 3, 0.19f * side, 0.34f * side),
                   .narrow = draw_number(d, first + 4, 0.6f, 0.9f)};
    // Values form a circle. Going a quarter to three quarters around it from the background's value
    // never leads to a similar one.
    for (size_t c = 0; c < CHANNELS; c++)
        shape.color[c] = fmodf(background[c] + draw_number(d, first + 5 + c, 0.25f, 0.75f), 1);
    return shape;
}

static bool shape_covers(const Shape *shape, size_t row, size_t column) {
    float x = fabsf((float)column - shape->x), y = (float)row - shape->y, r = shape->radius;
    switch (shape->kind) {
    case SHAPES_CIRCLE:
        return x * x + y * y <= r * r;
    case SHAPES_RECTANGLE:
        return x <= r * shape->narrow && fabsf(y) <= r * (1.5f - shape->narrow);
    default: // its apex at y = -r, its base, of width 2 r narrow, at y = r
        return y <= r && x <= (y + r) / 2 * shape->narrow;
    }
}

// The number of the uppermost shape at this pixel, from 1; 0: the background.
static size_t uppermost_shape(const Shape *shapes, size_t count, size_t row, size_t column) {
    for (size_t s = count; s > 0; s--)
        if (shape_covers(&shapes[s - 1], row, column)) return s;
    return 0;
}

// Whether this is a pixel of a shape with a neighbour outside of that shape.
static bool on_outline(const Drawing *d, const Shape *shapes, size_t count, size_t row,
                       size_t column) {
    size_t own = uppermost_shape(shapes, count, row, column);
    if (own == 0) return false;
    if (row > 0 && uppermost_shape(shapes, count, row - 1, column) != own) return true;
    if (column > 0 && uppermost_shape(shapes, count, row, column - 1) != own) return true;
    if (row + 1 < d->height && uppermost_shape(shapes, count, row + 1, column) != own) return true;
    return column + 1 < d->width && uppermost_shape(shapes, count, row, column + 1) != own;
}

// Draws one sample into pixels [3, h, w] and labels [h, w].
static void draw_sample(const Drawing *d, uint8_t *pixels, int64_t *labels) {
    float background[CHANNELS];
    Shape shapes[MAX_SHAPES];
    size_t count = 1 + (size_t)draw_number(d, DRAW_COUNT, 0, MAX_SHAPES),
           plane = d->height * d->width;
    for (size_t c = 0; c < CHANNELS; c++) background[c] = draw_number(d, DRAW_BACKGROUND + c, 0, 1);
    for (size_t s = 0; s < count; s++) shapes[s] = draw_shape(d, s, background);
    for (size_t p = 0; p < plane; p++) {
        size_t row = p / d->width, column = p % d->width;
        size_t top = uppermost_shape(shapes, count, row, column);
        const float *color = top ? shapes[top - 1].color : background;
        for (size_t c = 0; c < CHANNELS; c++) {
            size_t index = d->number * CHANNELS * plane + c * plane + p;
            float value = color[c] + NOISE * rng_normal(d->seed, RNG_STREAM_NOISE, index);
            pixels[c * plane + p] = (uint8_t)lrintf(255 * fminf(fmaxf(value, 0), 1));
        }
        labels[p] = top ? shapes[top - 1].kind : SHAPES_BACKGROUND;
        if (on_outline(d, shapes, count, row, column)) labels[p] = LABEL_IGNORE;
    }
}

static void draw_set(Dataset *set, size_t height, size_t width, uint64_t seed, size_t first,
                     size_t count) {
    size_t plane = height * width;
    *set = (Dataset){.count = count,
                     .shape = {CHANNELS, height, width},
                     .classes = SHAPES_CLASSES,
                     .dense = true};
    set->bytes = memory_zalloc(count * CHANNELS * plane);
    set->labels = memory_zalloc(count * plane * sizeof *set->labels);
    for (size_t i = 0; i < count; i++) {
        Drawing d = {seed, first + i, height, width};
        draw_sample(&d, set->bytes + i * CHANNELS * plane, set->labels + i * plane);
    }
}

int shapes_open(const char *name, const DataOptions *options, DataSource *source, Error *err) {
    DataSpec spec;
    if (!spec_parse(name, "32x32", 3000, &spec) || spec.sides != 2 || spec.outputs > 0)
        return error_set(err, STATUS_USAGE,
                         "%s: want shapes:HEIGHTxWIDTH, with @COUNT behind it if you like",
                         format_quote(name).text);
    const size_t height = spec.side[0], width = spec.side[1], tests = spec.count / 5;
    if (height < MIN_SIDE || width < MIN_SIDE || height > MAX_SIDE || width > MAX_SIDE)
        return error_set(err, STATUS_USAGE, "%s: the sides must be of %d to %d pixels", name,
                         MIN_SIDE, MAX_SIDE);
    if (spec.count > MAX_PIXELS / (height * width))
        return error_set(err, STATUS_USAGE, "%s: that takes more than 3 GiB", name);
    draw_set(&source->train, height, width, options->seed, 0, spec.count);
    draw_set(&source->test, height, width, options->seed, TEST_FIRST, tests > 0 ? tests : 1);
    return 0;
}
