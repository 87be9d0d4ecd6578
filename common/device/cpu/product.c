/* product.c: see product.h. Compiled with -O3 -ffp-contract=fast: a multiplication and the addition
 * after it become one fused multiply-add.
 *
 * A tile of c, ROWS times PANEL, stays in 24 of the 32 vector registers: for each p it takes three
 * vectors of b and ROWS single elements of a. A panel of b stays in the first-level cache while it
 * meets the rows of a. A block of those stays in the second-level cache while it meets the panels.
 * The operands of the next tile and the next panel are prefetched meanwhile. A caller of many small
 * products names rows of a later one's operands: these are prefetched instead of the next panel.
 *
 * Rows of a that lie a multiple of 2 KiB apart share few places of the first-level cache, where
 * they would displace each other and the panel. A block of those is copied, so that they follow
 * each other.
 */
#include "common/device/cpu/kernels.h"

#if defined(__x86_64__)
#define TARGET        __attribute__((target("avx512f,avx2,fma")))
#define ALWAYS_INLINE __attribute__((always_inline)) TARGET static inline

enum {
    VECTORS = 3, // of a panel
    PANEL = VECTORS * WIDE,
    ROWS = 8,
    STEP = 8,      // rows of a transposed a that are packed side by side
    TURNED = 256,  // columns of a transposed a in a block
    BLOCK = 512,   // rows of any other a
    SHARING = 512, // rows at a distance of so many elements map to the same cache sets
    MANY = 4,      // panels: a block of a that meets more of them is copied
};

bool product_runs_here(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

// ---- packing ------------------------------------------------------------------------------------

// Swaps two squares of `d` lanes, off the diagonal of 2d rows and lanes.
#define SWAP(d, low, high)                                    \
    for (size_t i = 0; i < WIDE; i++)                         \
        if (!(i & (d))) {                                     \
            const Wide a = r[i], b = r[i + (d)];              \
            r[i] = __builtin_shufflevector(a, b, low);        \
            r[i + (d)] = __builtin_shufflevector(a, b, high); \
        }
#define LOW8  0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW4  0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW2  0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW1  0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31

// to[j, i] = from[i, j] for WIDE rows of WIDE elements
ALWAYS_INLINE void turn(const float *from, size_t stride, float *to, size_t to_stride) {
    Wide r[WIDE];
    for (size_t i = 0; i < WIDE; i++) wide_load(&r[i], from + i * stride);
    SWAP(8, LOW8, HIGH8)
    SWAP(4, LOW4, HIGH4)
    SWAP(2, LOW2, HIGH2)
    SWAP(1, LOW1, HIGH1)
    for (size_t j = 0; j < WIDE; j++) memcpy(to + j * to_stride, &r[j], sizeof r[j]);
}

// b's rows `at` in some of its columns.
typedef struct Panel {
    Range at, columns;
} Panel;

// Copies a panel of b to [at, width], padded by 0.
TARGET static void pack_b(const CpuMatrix *b, Panel panel, size_t width, float *to) {
    const Range at = panel.at, columns = panel.columns;
    const size_t count = at.end - at.begin, all = columns.end - columns.begin;
    const size_t row = b->transpose ? 1 : b->stride, column = b->transpose ? b->stride : 1;
    const float *from = b->data + at.begin * row + columns.begin * column;
    for (size_t j = 0; j < width; j += WIDE) {
        const size_t left = j < all ? all - j : 0, some = left < WIDE ? left : WIDE;
        size_t p = 0;
        if (b->transpose && some == WIDE)
            for (; p + WIDE <= count; p += WIDE)
                turn(from + j * column + p, column, to + p * width + j, width);
        if (!b->transpose && some == WIDE)
            for (; p < count; p++) memcpy(to + p * width + j, from + p * row + j, sizeof(Wide));
        for (; p < count; p++)
            for (size_t i = 0; i < WIDE; i++)
                to[p * width + j + i] = i < some ? from[p * row + (j + i) * column] : 0;
    }
}

// Columns `rows` of a transposed a go to [rows / ROWS, at, ROWS]; beyond the last one comes the
// tile's first again. STEP rows of memory are read side by side, so that each cache line of `to` is
// written at once.
TARGET static void pack_a(const CpuMatrix *a, Range at, Range rows, float *to) {
    const size_t count = at.end - at.begin, all = rows.end - rows.begin;
    for (size_t p = 0; p < count; p += STEP) {
        const size_t some = count - p < STEP ? count - p : STEP;
        const float *from = a->data + (at.begin + p) * a->stride + rows.begin;
        for (size_t r = 0; r < all; r += ROWS) {
            float *tile = to + r * count + p * ROWS;
            if (all - r >= ROWS)
                for (size_t i = 0; i < some; i++)
                    memcpy(tile + i * ROWS, from + i * a->stride + r, ROWS * sizeof *to);
            else
                for (size_t i = 0; i < some * ROWS; i++)
                    tile[i] = from[i / ROWS * a->stride + r + (i % ROWS < all - r ? i % ROWS : 0)];
        }
    }
}

// Rows of any other a go to [rows, at].
TARGET static void copy_a(const CpuMatrix *a, Range at, Range rows, float *to) {
    const size_t count = at.end - at.begin;
    for (size_t i = rows.begin; i < rows.end; i++, to += count)
        memcpy(to, a->data + i * a->stride + at.begin, count * sizeof *to);
}

// ---- tiles --------------------------------------------------------------------------------------

// c (+)= bias + a b, for up to ROWS rows and PANEL columns
typedef struct Tile {
    const float *a; // element [i, p] is a[i row + p step]
    size_t row, step;
    const float *b; // [k, whole vectors]
    const float *bias;
    float *c;
    size_t c_stride, rows, columns, k;
    bool accumulate, packed; // packed: the next tile of a follows this one
    CpuRows ahead;           // prefetched
    bool along; // of these: each row's elements [0, k); else row by row, PANEL elements
} Tile;

ALWAYS_INLINE Wide load(const float *from, size_t left) {
    Wide some = {0};
    if (left >= WIDE)
        wide_load(&some, from);
    else
        for (size_t i = 0; i < WIDE && i < left; i++) some[i] = from[i];
    return some;
}

ALWAYS_INLINE void store(float *to, Wide value, size_t left) {
    if (left >= WIDE)
        memcpy(to, &value, sizeof value); // one instruction
    else
        for (size_t i = 0; i < WIDE && i < left; i++) to[i] = value[i];
}

// Prefetches c and a of the next tile, and the rows ahead, into the first-level and the
// second-level cache: some cache lines for each WIDE products of a tile. All at its begin would
// fill the buffers of outstanding lines, and its own loads would wait. Prefetching memory that does
// not exist (after the last tile) has no effect.
ALWAYS_INLINE void prefetch(const Tile *t, size_t vectors, size_t p) {
    const CpuRows *next = &t->ahead;
    const size_t row = p / WIDE;
    for (size_t v = 0; v < vectors && row < ROWS; v++)
        __builtin_prefetch(t->c + (ROWS + row) * t->c_stride + v * WIDE, 1);
    for (size_t i = 0; i < ROWS && t->step == 1 && !t->packed; i++)
        __builtin_prefetch(t->a + (ROWS + i) * t->row + p);
    for (size_t i = 0; i < next->count && t->along; i++)
        __builtin_prefetch(next->data + i * next->stride + p, 0, 2);
    for (size_t v = 0; v < VECTORS && row < next->count && !t->along; v++)
        __builtin_prefetch(next->data + row * next->stride + v * WIDE, 0, 2);
}

// `vectors` and `whole` (ROWS rows of whole vectors) are constants. Rows beyond the last one repeat
// the first, and their sums are dropped.
ALWAYS_INLINE void tile_sums(const Tile *t, const size_t vectors, const bool whole) {
    const float *rows[ROWS], *b = t->b;
    Wide sums[ROWS][VECTORS];
    for (size_t i = 0; i < ROWS; i++) {
        rows[i] = t->a + (whole || i < t->rows ? i : 0) * t->row;
        for (size_t v = 0; v < vectors; v++) {
            sums[i][v] = (Wide){0};
            if (t->bias)
                sums[i][v] = load(t->bias + v * WIDE, whole ? WIDE : t->columns - v * WIDE);
        }
    }
    for (size_t p = 0, at = 0; p < t->k;) {
        const size_t end = t->k - p < WIDE ? t->k : p + WIDE;
        prefetch(t, vectors, p);
        for (; p < end; p++, at += t->step, b += vectors * WIDE) {
            Wide of_b[VECTORS];
            for (size_t v = 0; v < vectors; v++) wide_load(&of_b[v], b + v * WIDE);
            for (size_t i = 0; i < ROWS; i++)
                for (size_t v = 0; v < vectors; v++) sums[i][v] += rows[i][at] * of_b[v];
        }
    }
    for (size_t i = 0; i < ROWS; i++)
        for (size_t v = 0; v < vectors && (whole || i < t->rows); v++) {
            float *to = t->c + i * t->c_stride + v * WIDE;
            const size_t left = whole ? WIDE : t->columns - v * WIDE;
            if (t->accumulate) sums[i][v] = load(to, left) + sums[i][v];
            store(to, sums[i][v], left);
        }
}

TARGET static void tile(const Tile *t, size_t vectors) {
    const bool whole = t->rows == ROWS && t->columns == vectors * WIDE;
    if (vectors == 3 && whole)
        tile_sums(t, 3, true);
    else if (vectors == 3)
        tile_sums(t, 3, false);
    else if (vectors == 2 && whole)
        tile_sums(t, 2, true);
    else if (vectors == 2)
        tile_sums(t, 2, false);
    else
        tile_sums(t, 1, false);
}

// ---- blocks -------------------------------------------------------------------------------------

// Cuts `all` into parts of about equal length, at most `most`, and returns that length: a multiple
// of `unit`.
static size_t part_of(size_t all, size_t most, size_t unit) {
    const size_t parts = all > most ? (all + most - 1) / most : 1, part = (all + parts - 1) / parts;
    return (part + unit - 1) / unit * unit;
}

static size_t panels_of(size_t n) {
    return (n + PANEL - 1) / PANEL;
}

static Range columns_from(size_t j, size_t n) {
    return (Range){j, n - j > PANEL ? j + PANEL : n};
}

// The panel that is packed after this one: the next columns, else the first ones of the next chain,
// or of the next block's first chain.
static Panel panel_after(const CpuProduct *of, Panel panel) {
    if (panel.columns.end < of->n) return (Panel){panel.at, columns_from(panel.columns.end, of->n)};
    const size_t length = panel.at.end - panel.at.begin;
    const size_t begin = panel.at.end < of->k ? panel.at.end : 0, left = of->k - begin;
    return (Panel){{begin, left < length ? of->k : begin + length}, columns_from(0, of->n)};
}

// The rows of b's memory that a panel is packed from.
static CpuRows panel_rows(const CpuMatrix *b, Panel panel) {
    const Range rows = b->transpose ? panel.columns : panel.at;
    const size_t column = b->transpose ? panel.at.begin : panel.columns.begin;
    return (CpuRows){b->data + rows.begin * b->stride + column, b->stride, rows.end - rows.begin};
}

// Part i of `parts`.
ALWAYS_INLINE CpuRows part_ahead(CpuRows of, size_t i, size_t parts) {
    const size_t first = of.count * i / parts;
    return (CpuRows){of.data + first * of.stride, of.stride, of.count * (i + 1) / parts - first};
}

// Sets the tile's a to the block's first rows, and returns the distance to the next tile's. A
// transposed a is packed into `to` if it meets several panels.
TARGET static size_t begin_a(const CpuProduct *of, Range at, Range rows, float *to, Tile *t) {
    const CpuMatrix *a = &of->a;
    const size_t panels = panels_of(of->n);
    t->row = a->transpose ? 1 : a->stride;
    t->step = a->transpose ? a->stride : 1;
    t->a = a->data + rows.begin * t->row + at.begin * t->step;
    if (a->transpose && panels > 1) {
        pack_a(a, at, rows, to);
        t->step = ROWS;
        t->packed = true;
    } else if (!a->transpose && panels > MANY && a->stride % SHARING == 0) {
        copy_a(a, at, rows, to);
        t->row = t->k;
        t->packed = true;
    }
    if (t->packed) t->a = to;
    return ROWS * (t->packed ? t->k : t->row);
}

// One chain of each element of a block of rows, over `at` of k. The caller's rows are prefetched
// during the last chain.
TARGET static void multiply_block(const CpuProduct *of, Range at, Range rows) {
    float packed_a[BLOCK * PRODUCT_CHAIN],
        packed_b[PRODUCT_CHAIN * PANEL] __attribute__((aligned(64)));
    const size_t tiles = (rows.end - rows.begin + ROWS - 1) / ROWS, panels = panels_of(of->n);
    const bool callers = of->ahead.count > 0 && at.end == of->k;
    Tile t = {.b = packed_b,
              .c_stride = of->c_stride,
              .k = at.end - at.begin,
              .accumulate = of->accumulate || at.begin > 0,
              .along = callers || of->b.transpose};
    const size_t apart = begin_a(of, at, rows, packed_a, &t);
    const float *a = t.a;
    for (size_t j = 0; j < of->n; j += PANEL) {
        const Panel panel = {at, columns_from(j, of->n)};
        const CpuRows ahead = callers ? part_ahead(of->ahead, j / PANEL, panels)
                                      : panel_rows(&of->b, panel_after(of, panel));
        t.columns = panel.columns.end - j;
        t.bias = of->bias && at.begin == 0 ? of->bias + j : NULL;
        const size_t vectors = (t.columns + WIDE - 1) / WIDE;
        pack_b(&of->b, panel, vectors * WIDE, packed_b);
        for (size_t i = 0; i < tiles; i++) {
            const size_t r = rows.begin + i * ROWS;
            t.a = a + i * apart;
            t.c = of->c + r * of->c_stride + j;
            t.rows = rows.end - r < ROWS ? rows.end - r : ROWS;
            t.ahead = part_ahead(ahead, i, tiles);
            tile(&t, vectors);
        }
    }
}

void product_multiply(const CpuProduct *of) {
    const size_t chain = part_of(of->k, PRODUCT_CHAIN, WIDE);
    const size_t block = part_of(of->m, of->a.transpose ? TURNED : BLOCK, ROWS);
    for (size_t r = 0; r < of->m; r += block) {
        const Range rows = {r, of->m - r < block ? of->m : r + block};
        size_t p = 0;
        do { // once even without products: c is the bias then
            const Range at = {p, of->k - p < chain ? of->k : p + chain};
            multiply_block(of, at, rows);
            p += chain;
        } while (p < of->k);
    }
}
#else
bool product_runs_here(void) {
    return false;
}

void product_multiply(const CpuProduct *of) {
    (void)of;
}
#endif
