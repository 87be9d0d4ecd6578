/* slices.c: the CPU backend's work on lists of pieces of memory. */
#include <math.h>

#include "common/device/cpu/kernels.h"
#include "common/device/square_sum.h"

// Whether all numbers were finite: x - x is 0 for those, NaN for inf and NaN.
VECTORISED static bool scale_checked(float *y, float factor, size_t count) {
    float doubt = 0;
    for (size_t i = 0; i < count; i++) {
        doubt += y[i] - y[i];
        y[i] *= factor;
    }
    return doubt == 0;
}

static void cpu_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for (size_t s = 0; s < slice_count; s++)
        if (!scale_checked(slices[s].data, factor, slices[s].count)) *not_finite = 1;
}

// ---- squares ------------------------------------------------------------------------------------

// A block's squares are added in doubles, in lanes of which each has two: `large`, biased by 2^top,
// whose unit is therefore 2^(top - 52), and `small`, biased by 1.5 2^(top - 47), with the unit
// 2^(top - 99), which receives the first one's rounding errors. Neither leaves its binade, and
// every addition is exact, if all squares of the block are 0 or within [2^(top - 76), 2^(top - 5)]:
// as a lane gets 32 of them. Other blocks are added again with a better top, or one by one.
enum { SQUARE_LANES = 32, SQUARE_BLOCK = 32 * SQUARE_LANES, LEAST_TOP = -50 };

static double power_of_two(int exponent) {
    return ldexp(1, exponent);
}

static int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// Adds the squares of x[count], a multiple of SQUARE_LANES, to *sum. False, with the sum unchanged:
// they are outside of top's range.
VECTORISED static bool add_block(const float *x, size_t count, int top, int64_t *sum) {
    const double bias = power_of_two(top), small_bias = 1.5 * power_of_two(top - 47);
    const float least_square = (float)power_of_two(top - 76);
    double large[SQUARE_LANES], small[SQUARE_LANES];
    uint32_t least[SQUARE_LANES]; // bits of the least square, minus 1: 0 becomes the largest
    for (size_t k = 0; k < SQUARE_LANES; k++)
        large[k] = bias, small[k] = small_bias, least[k] = UINT32_MAX;
    for (size_t i = 0; i < count; i += SQUARE_LANES)
        for (size_t k = 0; k < SQUARE_LANES; k++) {
            const float square = x[i + k] * x[i + k];
            uint32_t bits;
            memcpy(&bits, &square, sizeof bits);
            least[k] = bits - 1 < least[k] ? bits - 1 : least[k];
            const double next = large[k] + (double)square;
            small[k] += (double)square - (next - large[k]);
            large[k] = next;
        }
    uint32_t bits;
    int64_t large_sum = 0, small_sum = 0;
    memcpy(&bits, &least_square, sizeof bits);
    for (size_t k = 0; k < SQUARE_LANES; k++) {
        if (!(large[k] < 2 * bias) || least[k] < bits - 1) return false;
        large_sum += bits_of(large[k]) - bits_of(bias); // as integers: in units
        small_sum += bits_of(small[k]) - bits_of(small_bias);
    }
    square_sum_add(sum, large_sum, top - 52 + 149);
    square_sum_add(sum, small_sum, top - 99 + 149);
    return true;
}

// The least top for these squares.
static int top_of(const float *x, size_t count) {
    int largest = 0;
    for (size_t i = 0; i < count; i++) {
        const int exponent = square_of(x[i] * x[i]).exponent;
        largest = exponent > largest ? exponent : largest;
    }
    const int top = largest + SQUARE_BITS - 149 + 5;
    return top < LEAST_TOP ? LEAST_TOP : top;
}

// *top: of the block before, and then of this one.
static void add_squares(const float *x, size_t count, int *top, int64_t *sum) {
    const size_t even = count / SQUARE_LANES * SQUARE_LANES;
    size_t i = 0;
    for (size_t end = even; i < even; i = end, end = even) {
        if (end - i > SQUARE_BLOCK) end = i + SQUARE_BLOCK;
        if (add_block(x + i, end - i, *top, sum)) continue;
        *top = top_of(x + i, end - i);
        if (add_block(x + i, end - i, *top, sum)) continue;
        for (size_t k = i; k < end; k++) square_sum_add_square(sum, x[k]);
    }
    for (; i < count; i++) square_sum_add_square(sum, x[i]);
}

static void cpu_squares(const Slice *slices, size_t slice_count, bool accumulate, int64_t *sum) {
    int top = 0;
    if (!accumulate) memset(sum, 0, SQUARES_SIZE * sizeof *sum);
    for (size_t s = 0; s < slice_count; s++)
        add_squares(slices[s].data, slices[s].count, &top, sum);
    square_sum_carry(sum);
}

static void cpu_clip(const Slice *slices, size_t slice_count, double max_norm, const int64_t *sum,
                     double *norm) {
    *norm = square_sum_root(sum);
    double factor = max_norm / (*norm + 1e-6);
    for (size_t s = 0; !(factor >= 1) && s < slice_count; s++)
        cpu_elementwise.scale(slices[s].data, (float)factor, slices[s].count);
}

// ---- lists --------------------------------------------------------------------------------------

static void cpu_pack(float *y, const Slice *slices, size_t slice_count) {
    for (size_t s = 0; s < slice_count; y += slices[s].count, s++)
        if (slices[s].count) memcpy(y, slices[s].data, slices[s].count * sizeof *y);
}

static void cpu_unpack(const Slice *slices, size_t slice_count, const float *x) {
    for (size_t s = 0; s < slice_count; x += slices[s].count, s++)
        if (slices[s].count) memcpy(slices[s].data, x, slices[s].count * sizeof *x);
}

const SliceKernels cpu_slices = {
    .unscale = cpu_unscale,
    .squares = cpu_squares,
    .clip = cpu_clip,
    .pack = cpu_pack,
    .unpack = cpu_unpack,
};
