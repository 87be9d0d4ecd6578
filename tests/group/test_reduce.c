/* test_reduce.c: reductions in rank order, bit for bit against a loop over the ranks of one
 * element: every type and operation, 1 to 6 ranks, counts around the ends of blocks, all positions
 * of the result; and the partition of a buffer into the ranks' slices.
 */
#include "tests/rigs/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/cache_line.h"
#include "common/base/half.h"
#include "common/base/rng.h"
#include "ddp/group/reduce.h"

enum { RANKS_MAX = 6, COUNT_MAX = 3000, ROOM = (COUNT_MAX + 8) * 8, GUARD = 0x5a };

// One element of any type.
typedef union Element {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t half;
    unsigned char bytes[8];
} Element;

// Small and large numbers of both signs, some NaN, infinite or zero.
static Element draw(PgType type, int rank, size_t i) {
    const float x =
        rng_uniform(7, (uint64_t)rank, i, -1, 1) * (float)(1 << (i + (size_t)rank) % 12);
    const size_t special = (i * 7 + (size_t)rank * 3) % 41;
    const float value = special == 0                   ? NAN
                        : special == 1                 ? INFINITY
                        : special == 2 || special == 8 ? 0
                        : special == 5                 ? -0.0f // next to a rank with +0
                                                       : x;
    switch (type) {
    case PG_F32:
        return (Element){.f32 = value};
    case PG_F64:
        return (Element){.f64 = (double)value * (1 + 1e-9 * (double)i)};
    case PG_I32:
        return (Element){.i32 = (int32_t)(x * 1e6f)}; // sums wrap
    case PG_I64:
        return (Element){.i64 = (int64_t)((double)x * 1e15)};
    case PG_U8:
        return (Element){.u8 = (uint8_t)(int)(x * 3)};
    case PG_F16:
        return (Element){.half = half_to_f16(value)};
    default:
        return (Element){.half = half_to_bf16(value)};
    }
}

#define PICK(a, b, op) \
    ((op) == PG_MAX ? ((b) > (a) || (b) != (b) ? (b) : (a)) : ((b) < (a) || (b) != (b) ? (b) : (a)))
#define IS_SUM(op) ((op) == PG_SUM || (op) == PG_AVG)

static Element combine(PgType type, ReduceOp op, Element a, Element b) {
    float x, y;
    switch (type) {
    case PG_F32:
        return (Element){.f32 = IS_SUM(op) ? a.f32 + b.f32 : PICK(a.f32, b.f32, op)};
    case PG_F64:
        return (Element){.f64 = IS_SUM(op) ? a.f64 + b.f64 : PICK(a.f64, b.f64, op)};
    case PG_I32:
        return (Element){.i32 = IS_SUM(op) ? (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32)
                                           : PICK(a.i32, b.i32, op)};
    case PG_I64:
        return (Element){.i64 = IS_SUM(op) ? (int64_t)((uint64_t)a.i64 + (uint64_t)b.i64)
                                           : PICK(a.i64, b.i64, op)};
    case PG_U8:
        return (Element){.u8 = IS_SUM(op) ? (uint8_t)(a.u8 + b.u8) : PICK(a.u8, b.u8, op)};
    case PG_F16:
        x = half_from_f16(a.half);
        y = half_from_f16(b.half);
        return (Element){.half = half_to_f16(IS_SUM(op) ? x + y : PICK(x, y, op))};
    default:
        x = half_from_bf16(a.half);
        y = half_from_bf16(b.half);
        return (Element){.half = half_to_bf16(IS_SUM(op) ? x + y : PICK(x, y, op))};
    }
}

static Element reduced(PgType type, ReduceOp op, int ranks, size_t i) {
    Element e = draw(type, 0, i);
    for (int r = 1; r < ranks; r++) e = combine(type, op, e, draw(type, r, i));
    if (op == PG_AVG && type == PG_F32) e.f32 *= (float)(1.0 / ranks);
    if (op == PG_AVG && type == PG_F64) e.f64 *= 1.0 / ranks;
    return e;
}

// Any two NaNs are equal: the processor chooses the NaN of a sum of two.
static bool same(PgType type, Element a, const unsigned char *found) {
    Element b = {0};
    memcpy(b.bytes, found, pg_type_bytes(type));
    if (type == PG_F32 && isnan(a.f32)) return isnan(b.f32);
    if (type == PG_F64 && isnan(a.f64)) return isnan(b.f64);
    if (type == PG_F16 && isnan(half_from_f16(a.half))) return isnan(half_from_f16(b.half));
    if (type == PG_BF16 && isnan(half_from_bf16(a.half))) return isnan(half_from_bf16(b.half));
    return memcmp(a.bytes, b.bytes, pg_type_bytes(type)) == 0;
}

typedef enum Place { ALL_IN_PLACE, FIRST_IN_PLACE, LAST_IN_PLACE, APART, TWO_APART, PLACES } Place;

static unsigned char buffers[RANKS_MAX + 2][ROOM];

// All targets contain the result; other buffers and the bytes after the targets are unchanged.
static void try_one(PgType type, ReduceOp op, int ranks, Place place, size_t count) {
    const size_t size = pg_type_bytes(type);
    void *sources[RANKS_MAX], *apart[2] = {buffers[RANKS_MAX], buffers[RANKS_MAX + 1]};
    memset(buffers, GUARD, sizeof buffers);
    for (int r = 0; r < ranks; r++) {
        sources[r] = buffers[r];
        for (size_t i = 0; i < count; i++)
            memcpy(buffers[r] + i * size, draw(type, r, i).bytes, size);
    }
    void *const *targets = place == ALL_IN_PLACE || place == FIRST_IN_PLACE ? sources
                           : place == LAST_IN_PLACE                         ? &sources[ranks - 1]
                                                                            : (void *const *)apart;
    const int target_count = place == ALL_IN_PLACE ? ranks : place == TWO_APART ? 2 : 1;
    reduce_in_rank_order(type, op, sources, ranks, targets, target_count, count);
    for (int b = 0; b < RANKS_MAX + 2; b++) {
        bool is_target = false;
        for (int t = 0; t < target_count; t++) is_target = is_target || targets[t] == buffers[b];
        for (size_t i = 0; i < count && (is_target || b < ranks); i++) {
            const Element want = is_target ? reduced(type, op, ranks, i) : draw(type, b, i);
            if (!same(type, want, buffers[b] + i * size))
                fail_msg(
                    "type %d, op %d, %d ranks, place %d, %zu elements: element %zu of buffer %d",
                    (int)type, (int)op, ranks, (int)place, count, i, b);
        }
        const size_t end = is_target || b < ranks ? count * size : 0;
        for (size_t i = 0; i < 8; i++) assert_int_equal(buffers[b][end + i], GUARD);
    }
}

static void every_sum_is_in_rank_order(void **state) {
    (void)state;
    static const size_t COUNTS[] = {0, 1, 17, 1023, 1024, 1025, 2049};
    for (PgType type = PG_F32; type <= PG_BF16; type++)
        for (ReduceOp op = PG_SUM; op <= PG_MIN; op++)
            for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
                for (Place place = ALL_IN_PLACE; place < PLACES; place++) {
                    if (op == PG_AVG && type != PG_F32 && type != PG_F64) continue;
                    const bool large = type == PG_F32 || ranks == 3; // the blocks are the same
                    for (size_t c = 0; c < (large ? 7 : 3); c++)
                        try_one(type, op, ranks, place, COUNTS[c]);
                }
}

// Slices are contiguous, begin at cache lines, and differ by at most one line.
static void slices_are_whole_lines(void **state) {
    (void)state;
    for (PgType type = PG_F32; type <= PG_BF16; type++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
            for (size_t count = 0; count < 700;
                 count += count % 64 < 3 || count % 64 > 61 ? 1 : 29) {
                const size_t line = CACHE_LINE / pg_type_bytes(type);
                const size_t each = count / (line * (size_t)ranks) * line;
                assert_int_equal(reduce_slice_count(type, count, ranks), each);
                for (int r = 0; r < ranks; r++) {
                    const ReduceSlice slice = reduce_slice_of(type, count, ranks, r);
                    assert_int_equal(slice.first, (size_t)r * each);
                    assert_int_equal(slice.count, r < ranks - 1 ? each : count - slice.first);
                }
            }
}

static void the_last_step_of_an_average(void **state) {
    (void)state;
    float f32[3] = {3, -7, 5};
    double f64[3] = {3, -7, 5};
    reduce_scale(PG_F32, f32, 3, 2);
    reduce_scale(PG_F64, f64, 3, 2);
    assert_true(f32[0] == 3 * (float)(1.0 / 3) && f32[1] == -7 * (float)(1.0 / 3) && f32[2] == 5);
    assert_true(f64[0] == 3 * (1.0 / 3) && f64[1] == -7 * (1.0 / 3) && f64[2] == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sum_is_in_rank_order),
        cmocka_unit_test(slices_are_whole_lines),
        cmocka_unit_test(the_last_step_of_an_average),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
