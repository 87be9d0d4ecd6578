/* reduce.c: reductions over ranks in rank order, for the backends that reduce on the CPU.
 *
 * For each element the result is ((s0 + s1) + s2) + ..., in the element's own type, and for PG_AVG
 * that sum once times 1/W. The specialised loops below round in the same places and order as the
 * general one; they differ in memory traffic only.
 *
 * Integer sums wrap around. MAX and MIN of floats propagate NaN.
 */
#include "ddp/group/reduce.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/half.h"
#include "common/base/sync.h"
#include "common/base/vectorise.h"

// Elements per block, so that the running sum stays in the L1 cache.
enum { BLOCK = 1024 };

// ---- F32 sums of two to four ranks, in place, in one pass -----------------------------------

VECTORISED static void sum2_f32(float *restrict a, float *restrict b, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) a[i] = b[i] = (a[i] + b[i]) * factor;
}

VECTORISED static void sum3_f32(float *restrict a, float *restrict b, float *restrict c,
                                float factor, size_t count) {
    for (size_t i = 0; i < count; i++) a[i] = b[i] = c[i] = ((a[i] + b[i]) + c[i]) * factor;
}

VECTORISED static void sum4_f32(float *restrict a, float *restrict b, float *restrict c,
                                float *restrict d, float factor, size_t count) {
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = c[i] = d[i] = (((a[i] + b[i]) + c[i]) + d[i]) * factor;
}

static void sum_f32_in_place(void *const *s, int ranks, float factor, size_t count) {
    if (ranks == 2)
        sum2_f32(s[0], s[1], factor, count);
    else if (ranks == 3)
        sum3_f32(s[0], s[1], s[2], factor, count);
    else
        sum4_f32(s[0], s[1], s[2], s[3], factor, count);
}

// ---- F32 sums for one target --------------------------------------------------------------------

VECTORISED static void add_f32(float *to, const float *a, const float *b, float factor,
                               size_t count) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) to[i] = (a[i] + b[i]) * factor;
}

// Two ranks in one pass; more in blocks, so that the partial sum stays in the cache.
static void sum_f32_to(float *to, void *const *sources, int ranks, float factor, size_t count) {
    _Alignas(CACHE_LINE) float sum[BLOCK];
    const size_t block = ranks == 2 ? count : BLOCK;
    for (size_t first = 0; first < count; first += block) {
        const size_t n = count - first < block ? count - first : block;
        const float *so_far = (const float *)sources[0] + first;
        for (int r = 1; r < ranks; r++) {
            const bool last = r + 1 == ranks;
            add_f32(last ? to + first : sum, so_far, (const float *)sources[r] + first,
                    last ? factor : 1.0f, n);
            so_far = sum;
        }
    }
}

// ---- the general form -----------------------------------------------------------------------

// sum[i] = sum[i] OP x[i] for one type and operation; EXPRESSION is in a and b. (A type cannot
// stand in parentheses.) NOLINTBEGIN(bugprone-macro-parentheses)
#define COMBINE(NAME, TYPE, EXPRESSION)                                                     \
    VECTORISED static void NAME(void *restrict sum, const void *restrict x, size_t count) { \
        TYPE *restrict to = sum;                                                            \
        const TYPE *restrict from = x;                                                      \
        for (size_t i = 0; i < count; i++) {                                                \
            TYPE a = to[i], b = from[i];                                                    \
            to[i] = (TYPE)(EXPRESSION);                                                     \
        }                                                                                   \
    }
// NOLINTEND(bugprone-macro-parentheses)

COMBINE(sum_f32, float, a + b)
COMBINE(max_f32, float, b > a || b != b ? b : a)
COMBINE(min_f32, float, b < a || b != b ? b : a)
COMBINE(sum_f64, double, a + b)
COMBINE(max_f64, double, b > a || b != b ? b : a)
COMBINE(min_f64, double, b < a || b != b ? b : a)
COMBINE(sum_i32, uint32_t, a + b) // unsigned: wrapping is defined
COMBINE(max_i32, int32_t, b > a ? b : a)
COMBINE(min_i32, int32_t, b < a ? b : a)
COMBINE(sum_i64, uint64_t, a + b)
COMBINE(max_i64, int64_t, b > a ? b : a)
COMBINE(min_i64, int64_t, b < a ? b : a)
COMBINE(sum_u8, uint8_t, a + b)
COMBINE(max_u8, uint8_t, b > a ? b : a)
COMBINE(min_u8, uint8_t, b < a ? b : a)

// 16-bit floats are combined as floats, and the result is rounded.
#define COMBINE_HALF(NAME, FROM, TO, EXPRESSION)                                            \
    VECTORISED static void NAME(void *restrict sum, const void *restrict x, size_t count) { \
        uint16_t *restrict to = sum;                                                        \
        const uint16_t *restrict from = x;                                                  \
        for (size_t i = 0; i < count; i++) {                                                \
            float a = FROM(to[i]), b = FROM(from[i]);                                       \
            to[i] = TO(EXPRESSION);                                                         \
        }                                                                                   \
    }

COMBINE_HALF(sum_f16, half_from_f16, half_to_f16, a + b)
COMBINE_HALF(max_f16, half_from_f16, half_to_f16, b > a || b != b ? b : a)
COMBINE_HALF(min_f16, half_from_f16, half_to_f16, b < a || b != b ? b : a)
COMBINE_HALF(sum_bf16, half_from_bf16, half_to_bf16, a + b)
COMBINE_HALF(max_bf16, half_from_bf16, half_to_bf16, b > a || b != b ? b : a)
COMBINE_HALF(min_bf16, half_from_bf16, half_to_bf16, b < a || b != b ? b : a)

typedef void Combine(void *restrict sum, const void *restrict x, size_t count);

static Combine *find_combine(PgType type, ReduceOp op) {
    static Combine *const table[][3] = {
        [PG_F32] = {sum_f32, max_f32, min_f32},    [PG_F64] = {sum_f64, max_f64, min_f64},
        [PG_I32] = {sum_i32, max_i32, min_i32},    [PG_I64] = {sum_i64, max_i64, min_i64},
        [PG_U8] = {sum_u8, max_u8, min_u8},        [PG_F16] = {sum_f16, max_f16, min_f16},
        [PG_BF16] = {sum_bf16, max_bf16, min_bf16}};
    return table[type][op == PG_MAX ? 1 : op == PG_MIN ? 2 : 0];
}

void reduce_scale(PgType type, void *values, int ranks, size_t count) {
    float *f32 = values, factor32 = (float)(1.0 / ranks);
    double *f64 = values, factor64 = 1.0 / ranks;
    if (type == PG_F32)
        for (size_t i = 0; i < count; i++) f32[i] *= factor32;
    else
        for (size_t i = 0; i < count; i++) f64[i] *= factor64;
}

static void reduce_in_blocks(PgType type, ReduceOp op, void *const *sources, int ranks,
                             void *const *targets, int target_count, size_t count) {
    _Alignas(CACHE_LINE) unsigned char sum[BLOCK * sizeof(double)];
    Combine *combine = find_combine(type, op);
    size_t size = pg_type_bytes(type);
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK, offset = first * size;
        memcpy(sum, (unsigned char *)sources[0] + offset, n * size);
        for (int r = 1; r < ranks; r++) combine(sum, (unsigned char *)sources[r] + offset, n);
        if (op == PG_AVG) reduce_scale(type, sum, ranks, n);
        for (int t = 0; t < target_count; t++)
            memcpy((unsigned char *)targets[t] + offset, sum, n * size);
    }
}

size_t reduce_slice_count(PgType type, size_t count, int ranks) {
    const size_t line = CACHE_LINE / pg_type_bytes(type);
    return count / line / (size_t)ranks * line;
}

ReduceSlice reduce_slice_of(PgType type, size_t count, int ranks, int rank) {
    const size_t each = reduce_slice_count(type, count, ranks), first = (size_t)rank * each;
    return (ReduceSlice){first, rank + 1 == ranks ? count - first : each};
}

void reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int ranks,
                          void *const *targets, int target_count, size_t count) {
    const bool in_place = targets == sources && target_count == ranks;
    const bool sums_f32 = type == PG_F32 && (op == PG_SUM || op == PG_AVG);
    const float factor = op == PG_AVG ? (float)(1.0 / ranks) : 1.0f;
    if (sums_f32 && in_place && ranks >= 2 && ranks <= 4)
        sum_f32_in_place(sources, ranks, factor, count);
    else if (sums_f32 && target_count == 1 && ranks > 1)
        sum_f32_to(targets[0], sources, ranks, factor, count);
    else
        reduce_in_blocks(type, op, sources, ranks, targets, target_count, count);
}
