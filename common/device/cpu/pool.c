/* pool.c: the CPU backend's sliding windows without weights: shortcut, pooling. */
#include "common/device/cpu/kernels.h"

#include <math.h>
#include <string.h>

// ---- shortcut --------------------------------------------------------------------------------

static void scatter_row(const float *row, float *destination, size_t count, size_t stride) {
    for (size_t i = 0; i < count; i++) destination[i * stride] += row[i];
}

void cpu_shortcut(const Window *v, const float *x, float *y) {
    size_t before = (v->k - v->c) / 2, plane = v->oh * v->ow;
    memset(y, 0, v->n * v->k * plane * sizeof *y);
    for (size_t i = 0; i < v->n; i++)
        for (size_t c = 0; c < v->c; c++)
            for (size_t row = 0; row < v->oh; row++)
                strided_copy(y + (i * v->k + before + c) * plane + row * v->ow,
                             x + ((i * v->c + c) * v->h + row * v->stride) * v->w, v->ow,
                             v->stride);
}

void cpu_shortcut_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    size_t before = (v->k - v->c) / 2, plane = v->oh * v->ow;
    if (!accumulate) memset(dx, 0, v->n * v->c * v->h * v->w * sizeof *dx);
    for (size_t i = 0; i < v->n; i++)
        for (size_t c = 0; c < v->c; c++)
            for (size_t row = 0; row < v->oh; row++)
                scatter_row(dy + (i * v->k + before + c) * plane + row * v->ow,
                            dx + ((i * v->c + c) * v->h + row * v->stride) * v->w, v->ow,
                            v->stride);
}

// ---- pooling ---------------------------------------------------------------------------------

static void check_pool(const Window *v) { // PyTorch's rule
    CHECK(2 * v->pad <= v->kernel, "pad %zu for kernel %zu: a window may see padding only", v->pad,
          v->kernel);
}

// The input rows (or columns) that window `index` covers.
static Range pool_range(const Window *v, size_t index, size_t input) {
    size_t begin = index * v->stride, end = begin + v->kernel; // counted from the padding's edge
    return (Range){begin > v->pad ? begin - v->pad : 0,
                   end < input + v->pad ? end - v->pad : input};
}

// The position of the largest value of a window of plane[h, width].
static size_t largest(const float *plane, size_t width, Range rows, Range columns) {
    size_t best = rows.begin * width + columns.begin;
    for (size_t y = rows.begin; y < rows.end; y++)
        for (size_t x = columns.begin; x < columns.end; x++) {
            float value = plane[y * width + x], record = plane[best];
            if (value > record || (isnan(value) && !isnan(record))) best = y * width + x;
        }
    return best;
}

// Four windows of 2 x 2 side by side, without a branch, which the processor would guess wrong every
// other time.
typedef int32_t FourPlaces __attribute__((vector_size(16)));

static FourFloats four_at(const float *plane, FourPlaces at) {
    return (FourFloats){plane[at[0]], plane[at[1]], plane[at[2]], plane[at[3]]};
}

// Of eight neighbours those at even and those at odd places: left and right pixels of four windows.
static void load_pairs(const float *row, FourFloats *left, FourFloats *right) {
    FourFloats a, b;
    memcpy(&a, row, sizeof a);
    memcpy(&b, row + 4, sizeof b);
    // Each is one instruction; GCC 12 takes {a[0], a[2], ...} apart into single elements.
    *left = __builtin_shufflevector(a, b, 0, 2, 4, 6);
    *right = __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

// The largest of each window of four, and its position; `corner` is the first value of each.
static FourFloats largest_of_2x2(const FourFloats values[4], int32_t width, FourPlaces corner,
                                 FourPlaces *chosen) {
    const FourPlaces places[4] = {corner, corner + 1, corner + width, corner + width + 1};
    FourFloats record = values[0];
    *chosen = corner;
    for (int i = 1; i < 4; i++) {
        FourFloats value = values[i];
        // All bits are set where the value is greater, or is the first that is not a number.
        FourPlaces wins = ~(value <= record) & (record == record);
        record = (FourFloats)((wins & (FourPlaces)value) | (~wins & (FourPlaces)record));
        *chosen = (wins & places[i]) | (~wins & *chosen);
    }
    return record;
}

// A row of fewer than four windows.
static void max_pool_rest(const float *plane, int32_t width, size_t first, size_t count, float *y,
                          int32_t *chosen) {
    const FourPlaces last = (int32_t)(first + 2 * (count - 1)) + (FourPlaces){0};
    FourPlaces corner = (int32_t)first + (FourPlaces){0, 2, 4, 6}, best;
    FourPlaces beyond = corner > last; // there the last window is computed again
    corner = (beyond & last) | (~beyond & corner);
    const FourFloats values[4] = {four_at(plane, corner), four_at(plane, corner + 1),
                                  four_at(plane, corner + width),
                                  four_at(plane, corner + width + 1)};
    FourFloats record = largest_of_2x2(values, width, corner, &best);
    for (size_t k = 0; k < count; k++) {
        y[k] = record[k];
        chosen[k] = best[k];
    }
}

// Windows of 2 x 2 with a stride of 2, which most networks have.
static bool is_common(const Window *v) {
    return v->kernel == 2 && v->stride == 2 && v->pad == 0;
}

// The next four windows of a row after those from i on; the last four overlap with those before.
static size_t next_four(size_t i, size_t width) {
    return i + 4 < width && i + 8 > width ? width - 4 : i + 4;
}

// One row of common windows. The first one's corner is at position `first` of the plane.
static void max_pool_row_2x2(const Window *v, const float *plane, size_t first, float *y,
                             int32_t *chosen) {
    if (v->ow < 4) {
        max_pool_rest(plane, (int32_t)v->w, first, v->ow, y, chosen);
        return;
    }
    for (size_t i = 0; i < v->ow; i = next_four(i, v->ow)) {
        const size_t at = first + 2 * i;
        FourFloats values[4], record;
        FourPlaces best;
        load_pairs(plane + at, &values[0], &values[1]);
        load_pairs(plane + at + v->w, &values[2], &values[3]);
        record =
            largest_of_2x2(values, (int32_t)v->w, (int32_t)at + (FourPlaces){0, 2, 4, 6}, &best);
        memcpy(y + i, &record, sizeof record);
        memcpy(chosen + i, &best, sizeof best);
    }
}

void cpu_max_pool(const Window *v, const float *x, float *y, int32_t *chosen) {
    check_pool(v);
    CHECK(v->h * v->w <= INT32_MAX, "a plane of %zu x %zu", v->h, v->w);
    size_t out = 0;
    const bool common = is_common(v);
    for (size_t i = 0; i < v->n * v->c; i++) {
        const float *plane = x + i * v->h * v->w;
        for (size_t row = 0; common && row < v->oh; row++, out += v->ow)
            max_pool_row_2x2(v, plane, 2 * row * v->w, y + out, chosen + out);
        for (size_t row = 0; !common && row < v->oh; row++)
            for (size_t column = 0; column < v->ow; column++, out++) {
                size_t best =
                    largest(plane, v->w, pool_range(v, row, v->h), pool_range(v, column, v->w));
                y[out] = plane[best];
                chosen[out] = (int32_t)best;
            }
    }
}

// Stores a, b, a, b, ... of four each.
static void store_pairs(float *row, FourFloats left, FourFloats right) {
    const FourFloats low = __builtin_shufflevector(left, right, 0, 4, 1, 5);
    const FourFloats high = __builtin_shufflevector(left, right, 2, 6, 3, 7);
    memcpy(row, &low, sizeof low);
    memcpy(row + 4, &high, sizeof high);
}

enum { AHEAD = 512 }; // prefetch distance of the stores, in elements

// The gradient of one row of common windows, at least four, stored to two rows of the plane.
static void max_pool_gradient_row_2x2(const Window *v, const int32_t *chosen, const float *dy,
                                      float *plane, size_t first) {
    for (size_t i = 0; i < v->ow; i = next_four(i, v->ow)) {
        const size_t at = first + 2 * i;
        const int32_t width = (int32_t)v->w;
        const FourPlaces corner = (int32_t)at + (FourPlaces){0, 2, 4, 6};
        const FourPlaces places[4] = {corner, corner + 1, corner + width, corner + width + 1};
        FourPlaces best;
        FourFloats gradient, of[4];
        memcpy(&best, chosen + i, sizeof best);
        memcpy(&gradient, dy + i, sizeof gradient);
        gradient += 0.0f; // -0 becomes 0, as in a sum
        for (int t = 0; t < 4; t++)
            of[t] = (FourFloats)((FourPlaces)gradient & (best == places[t]));
        __builtin_prefetch(plane + at + AHEAD, 1);
        __builtin_prefetch(plane + at + v->w + AHEAD, 1);
        store_pairs(plane + at, of[0], of[1]);
        store_pairs(plane + at + v->w, of[2], of[3]);
    }
    for (size_t x = 2 * v->ow; x < v->w; x++) plane[first + x] = plane[first + v->w + x] = 0;
}

void cpu_max_pool_gradient(const Window *v, const int32_t *chosen, const float *dy, float *dx,
                           bool accumulate) {
    const size_t plane = v->oh * v->ow, size = v->h * v->w;
    const bool common = is_common(v) && v->ow >= 4 && !accumulate;
    if (!common && !accumulate) memset(dx, 0, v->n * v->c * size * sizeof *dx);
    for (size_t i = 0; i < v->n * v->c; i++, chosen += plane, dy += plane, dx += size) {
        for (size_t row = 0; common && row < v->oh; row++)
            max_pool_gradient_row_2x2(v, chosen + row * v->ow, dy + row * v->ow, dx,
                                      2 * row * v->w);
        for (size_t j = 2 * v->oh * v->w; common && j < size; j++) dx[j] = 0;
        for (size_t j = 0; !common && j < plane; j++) dx[(size_t)chosen[j]] += dy[j];
    }
}

void cpu_avg_pool(const Window *v, const float *x, float *y) {
    check_pool(v);
    double area = (double)(v->kernel * v->kernel);
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++) {
        const float *plane = x + i * v->h * v->w;
        for (size_t row = 0; row < v->oh; row++)
            for (size_t column = 0; column < v->ow; column++, out++) {
                Range rows = pool_range(v, row, v->h), columns = pool_range(v, column, v->w);
                double sum = 0;
                for (size_t j = rows.begin; j < rows.end; j++)
                    for (size_t k = columns.begin; k < columns.end; k++)
                        sum += (double)plane[j * v->w + k];
                y[out] = (float)(sum / area);
            }
    }
}

void cpu_avg_pool_gradient(const Window *v, const float *dy, float *dx, bool accumulate) {
    check_pool(v);
    float share = 1.0f / (float)(v->kernel * v->kernel);
    if (!accumulate) memset(dx, 0, v->n * v->c * v->h * v->w * sizeof *dx);
    size_t out = 0;
    for (size_t i = 0; i < v->n * v->c; i++) {
        float *plane = dx + i * v->h * v->w;
        for (size_t row = 0; row < v->oh; row++)
            for (size_t column = 0; column < v->ow; column++, out++) {
                Range rows = pool_range(v, row, v->h), columns = pool_range(v, column, v->w);
                float gradient = dy[out] * share;
                for (size_t j = rows.begin; j < rows.end; j++)
                    for (size_t k = columns.begin; k < columns.end; k++)
                        plane[j * v->w + k] += gradient;
            }
    }
}
