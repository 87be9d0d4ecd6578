/* attention.c: the CPU backend's causal attention, as matrix products, head by head.
 *
 * A head's queries, keys and values are matrices [length, size] inside qkv, whose rows are 3 times
 * `channels` elements apart: the products take them as they are.
 * Queries are computed in blocks of BLOCK, each with the keys up to its last query only, which
 * saves nearly half of the work on long texts. All weights are saved for the gradient.
 * The rows of a head lie too far apart for the processor to prefetch them by itself. In texts of up
 * to SHORT tokens, where a head fits in the second-level cache, products prefetch the next head's.
 */
#include <math.h>

#include "common/device/cpu/exponential.h"
#include "common/device/cpu/kernels.h"

enum { BLOCK = 32, SHORT = 256 };

static size_t activations(const Attention *of) { // elements of y; qkv has 3 times as many
    return of->batch * of->length * of->heads * of->size;
}

// Counts the bytes of two blocks of scores; in 16 bits also those of qkv and dy after rounding, and
// of dqkv before rounding.
size_t cpu_attention_workspace(Precision precision, const Attention *of) {
    const HostCounts counts = {3 * activations(of), activations(of), 0, 3 * activations(of)};
    return (size_t)2 * BLOCK * of->length * sizeof(float) + host_room(precision, counts);
}

// The operands of forward and backward, after rounding.
typedef struct Work {
    const Attention *of;
    Precision precision;
    size_t channels;
    const float *qkv; // [batch length, 3 channels]
    float *scores;    // [BLOCK, length]
    float *lowered;   // [BLOCK, length]: weights rounded to 16 bits
} Work;

// A block of queries, and the text and the head that they are of.
typedef struct Block {
    size_t first, rows; // queries [first, first + rows) of the text
    size_t keys;        // how many of the keys these queries see: first + rows
    size_t text, head;
} Block;

static CpuMatrix part_of(const Work *work, Block block, size_t part, size_t row, bool transpose) {
    size_t stride = 3 * work->channels;
    const float *data = work->qkv + (block.text * work->of->length + row) * stride +
                        part * work->channels + block.head * work->of->size;
    return (CpuMatrix){data, stride, transpose};
}

enum { QUERY, KEY, VALUE };

// The place of a head's row in a tensor [batch length, channels].
static size_t row_of(const Work *work, Block block, size_t row) {
    return (block.text * work->of->length + row) * work->channels + block.head * work->of->size;
}

static size_t weights_of(const Work *work, Block block) {
    size_t length = work->of->length;
    return ((block.text * work->of->heads + block.head) * length + block.first) * length;
}

// The block's rows of the next head, in a tensor [batch length, parts channels]: `parts` rows for
// each token, `channels` apart.
static CpuRows next_rows(const Work *work, Block block, const float *tensor, size_t parts) {
    const Attention *of = work->of;
    const bool last = block.head + 1 == of->heads;
    const size_t text = block.text + last, head = last ? 0 : block.head + 1;
    const float *row = tensor + (text * of->length + block.first) * parts * work->channels;
    return (CpuRows){row + head * of->size, work->channels,
                     of->length <= SHORT ? parts * block.rows : 0};
}

// The next head's weights of the block, which follow each other: `length` rows of block.rows.
static CpuRows next_weights(const Work *work, Block block, const float *weights) {
    const size_t length = work->of->length;
    return (CpuRows){weights + length * length, block.rows, length <= SHORT ? length : 0};
}

static inline size_t seen(Block block, size_t i) { // how many tokens row i sees
    return block.first + i + 1;
}

// How many scores of row i are computed: the tokens that it sees, rounded up to whole vectors.
static inline size_t computed(Block block, size_t i) {
    const size_t whole = (seen(block, i) + WIDE - 1) / WIDE * WIDE;
    return whole < block.keys ? whole : block.keys;
}

// Scores [rows, keys], `length` apart, become weights: exp(scale (x - max)) over their sum for the
// tokens that a row sees, one more than the row before, and 0 for the rest. A row's sum depends on
// its exponentials, and these on its maximum: each is computed for all rows before the next, so
// that the processor overlaps rows.
VECTORISED static void block_softmax(float *scores, Block block, size_t length, float scale) {
    float maxima[BLOCK], *row = scores;
    for (size_t i = 0; i < block.rows; i++)
        maxima[i] = wide_max(scores + i * length, seen(block, i));
    for (size_t i = 0; i < block.rows; i++, row += length) {
        const size_t count = computed(block, i);
        const float max = maxima[i];
        INDEPENDENT
        for (size_t j = 0; j < count; j++) row[j] = exponential((row[j] - max) * scale);
        for (size_t j = seen(block, i); j < block.keys; j++) row[j] = 0;
    }
    row = scores;
    for (size_t i = 0; i < block.rows; i++, row += length) {
        const size_t count = computed(block, i);
        Wide sums = {0}, values;
        float total = 0;
        size_t j = 0;
        for (; j + WIDE <= count; j += WIDE) {
            wide_load(&values, row + j);
            sums += values;
        }
        for (; j < count; j++) total += row[j];
        const float factor = 1 / (total + wide_sum(&sums));
        INDEPENDENT
        for (j = 0; j < count; j++) row[j] *= factor;
    }
}

// Returns the weights as the values are multiplied by them: rounded, if the precision is 16 bits.
static const float *lowered(const Work *work, const float *weights, Block block) {
    size_t length = work->of->length;
    if (work->precision == PRECISION_F32) return weights;
    for (size_t i = 0; i < block.rows; i++)
        host_round(work->precision, work->lowered + i * length, weights + i * length, block.keys);
    return work->lowered;
}

typedef struct Place {
    float *data;
    size_t stride;
    bool add;
    CpuRows ahead; // prefetched during the product
} Place;

// to[m, n] (+)= a b
static void multiply(size_t m, size_t n, size_t k, CpuMatrix a, CpuMatrix b, Place to) {
    cpu_multiply(&(CpuProduct){m, n, k, a, b, NULL, to.data, to.stride, to.add, to.ahead});
}

static void block_forward(const Work *work, Block block, float *weights, float *y) {
    size_t length = work->of->length, size = work->of->size;
    float scale = (float)(1 / sqrt((double)size));
    multiply(block.rows, block.keys, size, part_of(work, block, QUERY, block.first, false),
             part_of(work, block, KEY, 0, true),
             (Place){weights, length, false, next_rows(work, block, work->qkv, 3)});
    block_softmax(weights, block, length, scale);
    multiply(block.rows, size, block.keys,
             (CpuMatrix){lowered(work, weights, block), length, false},
             part_of(work, block, VALUE, 0, false),
             (Place){y + row_of(work, block, block.first), work->channels, false,
                     next_rows(work, block, y, 1)});
}

// Replaces dp by factor p (dp - sum of p dp). With the scale as factor, these are the numbers by
// which queries and keys are multiplied.
VECTORISED static void score_gradients(float *dp, const float *p, Block block, size_t length,
                                       float factor) {
    size_t whole = block.keys / WIDE * WIDE;
    for (size_t i = 0; i < block.rows; i++, dp += length, p += length) {
        Wide sums = {0}, a, b;
        float sum = 0;
        for (size_t j = 0; j < whole; j += WIDE) {
            wide_load(&a, p + j);
            wide_load(&b, dp + j);
            sums += a * b;
        }
        for (size_t j = whole; j < block.keys; j++) sum += p[j] * dp[j];
        float mean = sum + wide_sum(&sums);
        INDEPENDENT
        for (size_t j = 0; j < block.keys; j++) dp[j] = factor * (p[j] * (dp[j] - mean));
    }
}

// The last block of a head is computed first: it covers all keys, so it writes gradients to which
// the other blocks add.
static void block_backward(const Work *work, Block block, const float *weights, const float *dy,
                           float *dqkv, bool accumulate) {
    size_t length = work->of->length, size = work->of->size, stride = 3 * work->channels;
    bool add = accumulate || block.keys < length;
    float scale = (float)(1 / sqrt((double)size)), *ds = work->scores;
    CpuMatrix from = {dy + row_of(work, block, block.first), work->channels, false};
    float *to = dqkv + (part_of(work, block, QUERY, 0, false).data - work->qkv);
    multiply(block.keys, size, block.rows, (CpuMatrix){lowered(work, weights, block), length, true},
             from, (Place){to + 2 * work->channels, stride, add, {0}}); // dv
    multiply(block.rows, block.keys, size, from, part_of(work, block, VALUE, 0, true),
             (Place){ds, length, false, next_rows(work, block, work->qkv, 3)});
    bool rounding = work->precision != PRECISION_F32;
    score_gradients(ds, weights, block, length, rounding ? 1 : scale);
    for (size_t i = 0; rounding && i < block.rows; i++) {
        float *row = ds + i * length;
        host_round(work->precision, row, row, block.keys);
        cpu_elementwise.scale(row, scale, block.keys);
    }
    multiply(block.rows, size, block.keys, (CpuMatrix){ds, length, false},
             part_of(work, block, KEY, 0, false),
             (Place){to + block.first * stride, stride, accumulate,
                     next_rows(work, block, dy, 1)}); // dq
    multiply(block.keys, size, block.rows, (CpuMatrix){ds, length, true},
             part_of(work, block, QUERY, block.first, false),
             (Place){to + work->channels, stride, add, next_weights(work, block, weights)}); // dk
}

static Block block_at(const Work *work, size_t head, size_t first) {
    size_t left = work->of->length - first, rows = left < BLOCK ? left : BLOCK;
    return (Block){first, rows, first + rows, head / work->of->heads, head % work->of->heads};
}

// Sets *work to the attention of rounded operands, and returns the operands: a is qkv, b is dy (in
// the forward pass NULL), c is y or dqkv. They are stored behind the workspace's two blocks.
static HostProduct begin(Work *work, Compute how, const Attention *of, HostCounts counts,
                         HostProduct operands) {
    float *scores = how.workspace, *lowered = scores + BLOCK * of->length;
    operands.workspace = lowered + BLOCK * of->length;
    HostProduct p = host_begin(how.precision, counts, operands);
    *work = (Work){.of = of,
                   .precision = how.precision,
                   .channels = of->heads * of->size,
                   .qkv = p.a,
                   .scores = scores,
                   .lowered = lowered};
    return p;
}

void cpu_attention(Compute how, const Attention *of, const float *qkv, float *y, void *saved) {
    Work work;
    const HostCounts counts = {3 * activations(of), 0, 0, activations(of)};
    HostProduct p = begin(&work, how, of, counts, (HostProduct){.a = qkv, .c = y});
    for (size_t head = 0; head < of->batch * of->heads; head++)
        for (size_t first = 0; first < of->length; first += BLOCK) {
            Block block = block_at(&work, head, first);
            block_forward(&work, block, (float *)saved + weights_of(&work, block), p.c);
        }
    host_end(how.precision, counts, &p, y, false);
}

void cpu_attention_gradient(Compute how, const Attention *of, const float *qkv, const float *y,
                            const void *saved, const float *dy, float *dqkv, bool accumulate) {
    Work work;
    const HostCounts counts = {3 * activations(of), activations(of), 0, 3 * activations(of)};
    (void)y;
    HostProduct p = begin(&work, how, of, counts,
                          (HostProduct){.a = qkv, .b = dy, .c = dqkv, .accumulate = accumulate});
    const float *weights = saved;
    for (size_t head = 0; head < of->batch * of->heads; head++)
        for (size_t i = (of->length + BLOCK - 1) / BLOCK; i-- > 0;) {
            Block block = block_at(&work, head, i * BLOCK);
            block_backward(&work, block, weights + weights_of(&work, block), p.b, p.c,
                           p.accumulate);
        }
    host_end(how.precision, counts, &p, dqkv, accumulate);
}
