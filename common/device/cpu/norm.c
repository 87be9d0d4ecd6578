/* norm.c: the CPU backend's batch norm.
 *
 * Memory decides the speed. Each pass takes a block of channels, image by image, with the channels'
 * sums side by side; the second pass goes backwards, because the last images are still in a cache.
 * Sums are in float for SHORT additions, and in double beyond them. From x a typical value is
 * subtracted first: so a large mean beside a small spread costs no digits. Where other ranks hold a
 * part of the batch, the passes are functions of their own: between them the ranks exchange their
 * statistics.
 */
#include "common/device/cpu/kernels.h"

#include <math.h>

enum { BLOCK = 64, SHORT = 16 };

// Some neighbouring channels.
typedef struct Block {
    const BatchNorm *norm;
    size_t first, channels;
} Block;

// Starts from {norm}. False after the last block. A block's channels are one run of memory in each
// image: fewer channels, whose runs the second pass would find in a cache, are slower.
static bool block_next(Block *block) {
    block->first += block->channels;
    const size_t left = block->norm->c - block->first;
    block->channels = left < BLOCK ? left : BLOCK;
    return left > 0;
}

// The index of a channel's run of `inner` elements in one image.
static inline size_t run_at(const Block *block, size_t image, size_t channel) {
    return (image * block->norm->c + block->first + channel) * block->norm->inner;
}

typedef struct Sums {
    double first, second;
} Sums;

typedef struct PartialSums {
    Wide first, second; // of the last `additions` vectors
    int additions;
    Sums before; // those and the elements after the last whole vector of a run
} PartialSums;

static inline void add_up(PartialSums *partial) {
    partial->before.first += (double)wide_sum(&partial->first);
    partial->before.second += (double)wide_sum(&partial->second);
    partial->first = partial->second = (Wide){0};
    partial->additions = 0;
}

static Sums sums_of(PartialSums *partial) {
    add_up(partial);
    return partial->before;
}

// ---- the sums of the forward pass --------------------------------------------------------------

// Adds a run's x - shift, and its square.
static inline void add_moments_of(PartialSums *to, const float *x, float shift, size_t count) {
    PartialSums p = *to;
    Wide value;
    size_t j = 0;
    for (; j + WIDE <= count; j += WIDE) {
        wide_load(&value, x + j);
        value -= shift;
        p.first += value;
        p.second += value * value;
        if (++p.additions == SHORT) add_up(&p);
    }
    for (; j < count; j++) {
        const double left = (double)x[j] - (double)shift;
        p.before.first += left;
        p.before.second += left * left;
    }
    *to = p;
}

VECTORISED static void add_moments(const Block *block, const float *shift, PartialSums *to) {
    const BatchNorm *norm = block->norm;
    for (size_t i = 0; i < norm->n; i++)
        for (size_t c = 0; c < block->channels; c++)
            add_moments_of(&to[c], norm->x + run_at(block, i, c), shift[c], norm->inner);
}

// ---- the sums of the backward pass -------------------------------------------------------------

// gradient = 0 where y <= 0
static inline void wide_mask(Wide *gradient, const float *y) {
    typedef int32_t Bits __attribute__((vector_size(sizeof(Wide))));
    Wide out;
    wide_load(&out, y);
    *gradient = (Wide)((Bits)*gradient & (out > 0)); // all bits are set where it is true
}

// Adds a run's dy, masked by y unless that is NULL, and dy (x - mean). Inline: each caller below
// gets a loop without that condition.
static inline void add_products_of(PartialSums *to, const float *x, const float *dy, const float *y,
                                   float mean, size_t count) {
    PartialSums p = *to;
    Wide centered, gradient;
    size_t j = 0;
    for (; j + WIDE <= count; j += WIDE) {
        wide_load(&centered, x + j);
        wide_load(&gradient, dy + j);
        if (y) wide_mask(&gradient, y + j);
        p.first += gradient;
        p.second += gradient * (centered - mean);
        if (++p.additions == SHORT) add_up(&p);
    }
    for (; j < count; j++) {
        const float slope = !y || y[j] > 0 ? dy[j] : 0;
        p.before.first += (double)slope;
        p.before.second += (double)(slope * (x[j] - mean));
    }
    *to = p;
}

VECTORISED static void add_products(const Block *block, const float *dy, const float *mean,
                                    PartialSums *to) {
    const BatchNorm *norm = block->norm;
    for (size_t i = 0; i < norm->n; i++)
        for (size_t c = 0; c < block->channels; c++) {
            const size_t at = run_at(block, i, c);
            add_products_of(&to[c], norm->x + at, dy + at, NULL, mean[c], norm->inner);
        }
}

VECTORISED static void add_masked_products(const Block *block, const float *dy, const float *mean,
                                           PartialSums *to) {
    const BatchNorm *norm = block->norm;
    for (size_t i = 0; i < norm->n; i++)
        for (size_t c = 0; c < block->channels; c++) {
            const size_t at = run_at(block, i, c);
            add_products_of(&to[c], norm->x + at, dy + at, norm->y + at, mean[c], norm->inner);
        }
}

// ---- the results -------------------------------------------------------------------------------

// Factors of a channel's elements.
typedef struct Factors {
    float mean, scale, bias; // y = (x - mean) scale + bias
    float slope, dy_mean, lean;
} Factors;

static inline float relu(float value) {
    return value < 0 ? 0 : value; // a NaN stays
}

// y = (x - mean) scale + bias, then relu(y + residual) if `finish` and the norm has a relu; may be
// in place
VECTORISED static void normalize(const Block *block, const Factors *factors, bool finish,
                                 float *y) {
    const BatchNorm *norm = block->norm;
    for (size_t i = norm->n; i-- > 0;)
        for (size_t c = 0; c < block->channels; c++) {
            const size_t at = run_at(block, i, c);
            const float *run = norm->x + at, *more = norm->residual ? norm->residual + at : NULL;
            const Factors f = factors[c];
            float *out = y + at;
            if (!finish || !norm->relu) {
                INDEPENDENT
                for (size_t j = 0; j < norm->inner; j++)
                    out[j] = (run[j] - f.mean) * f.scale + f.bias;
            } else if (!norm->residual) {
                INDEPENDENT
                for (size_t j = 0; j < norm->inner; j++)
                    out[j] = relu((run[j] - f.mean) * f.scale + f.bias);
            } else {
                INDEPENDENT
                for (size_t j = 0; j < norm->inner; j++)
                    out[j] = relu((run[j] - f.mean) * f.scale + f.bias + more[j]);
            }
        }
}

// dx (+)= slope dy, for constant statistics
VECTORISED static void scale(const Block *block, const Factors *factors, const float *dy,
                             const NormGradient *to) {
    const BatchNorm *norm = block->norm;
    for (size_t i = norm->n; i-- > 0;)
        for (size_t c = 0; c < block->channels; c++) {
            const float *run = dy + run_at(block, i, c), slope = factors[c].slope;
            float *out = to->dx + run_at(block, i, c);
            INDEPENDENT
            for (size_t j = 0; j < norm->inner; j++) {
                float gradient = slope * run[j];
                out[j] = to->add_dx ? out[j] + gradient : gradient;
            }
        }
}

// dx (+)= slope (dy - dy_mean - (x - mean) lean): the gradient without the two directions that the
// statistics took out, a shift of all x and a stretch about the mean. dy is masked if `relu`.
VECTORISED static void project(const Block *block, const Factors *factors, const float *dy,
                               bool relu, const NormGradient *to) {
    const BatchNorm *norm = block->norm;
    const bool add = to->add_dx;
    for (size_t i = norm->n; i-- > 0;)
        for (size_t c = 0; c < block->channels; c++) {
            const size_t at = run_at(block, i, c);
            const float *x = norm->x + at, *slopes = dy + at;
            const float *y = relu ? norm->y + at : slopes;
            const Factors f = factors[c];
            float *out = to->dx + at;
            INDEPENDENT
            for (size_t j = 0; j < norm->inner; j++) {
                float slope = relu && !(y[j] > 0) ? 0 : slopes[j];
                float gradient = f.slope * (slope - f.dy_mean - (x[j] - f.mean) * f.lean);
                out[j] = add ? out[j] + gradient : gradient;
            }
        }
}

// ---- channels ----------------------------------------------------------------------------------

static double count_of(const BatchNorm *norm) { // elements per channel
    return (double)(norm->n * norm->inner);
}

typedef struct Statistics {
    double mean, squares; // squares: the sum of (x - mean)^2
} Statistics;

static void store_statistics(const BatchNorm *norm, size_t i, Statistics of, double count) {
    norm->mean[i] = (float)of.mean;
    norm->invstd[i] = (float)(1 / sqrt(of.squares / count + (double)norm->eps));
}

static void update_running(float *running, double value, float momentum) {
    *running = (float)((1 - (double)momentum) * (double)*running + (double)momentum * value);
}

static void store_running(const BatchNorm *norm, size_t i, Statistics of, double count) {
    update_running(&norm->running_mean[i], of.mean, norm->momentum);
    update_running(&norm->running_var[i], of.squares / (count - 1), norm->momentum); // unbiased
}

// A value near a channel's elements: the mean of its first run.
static float near_value(const Block *block, size_t channel) {
    const size_t count = block->norm->inner;
    return (float)(cpu_sum(block->norm->x + run_at(block, 0, channel), count) / (double)count);
}

// Computes the statistics of a block's channels and stores mean and invstd.
static void measure(const Block *block, Statistics *of) {
    const double count = count_of(block->norm);
    float shift[BLOCK] = {0};
    PartialSums partial[BLOCK] = {0};
    for (size_t c = 0; c < block->channels; c++) shift[c] = near_value(block, c);
    add_moments(block, shift, partial);
    for (size_t c = 0; c < block->channels; c++) {
        Sums sums = sums_of(&partial[c]);
        double offset = sums.first / count; // difference of the mean from the shift
        double squares = sums.second - offset * sums.first;
        if (squares < 0) squares = 0; // rounding can do that when all x are equal
        of[c] = (Statistics){(double)shift[c] + offset, squares};
        store_statistics(block->norm, block->first + c, of[c], count);
    }
}

static float eval_invstd(const BatchNorm *norm, size_t i) {
    return (float)(1 / sqrt((double)norm->running_var[i] + (double)norm->eps));
}

// Factors of normalize, from the batch's statistics or, in evaluation, the running ones.
static void normalize_block(const Block *block, bool evaluation, bool finish, float *y) {
    const BatchNorm *norm = block->norm;
    Factors factors[BLOCK] = {0};
    for (size_t c = 0; c < block->channels; c++) {
        const size_t i = block->first + c;
        const float invstd = evaluation ? eval_invstd(norm, i) : norm->invstd[i];
        factors[c].mean = evaluation ? norm->running_mean[i] : norm->mean[i];
        factors[c].scale = invstd * norm->weight[i];
        factors[c].bias = norm->bias[i];
    }
    normalize(block, factors, finish, y);
}

// sums->first is the sum of dy, sums->second that of dy (x - mean).
static void store_parameters(const NormGradient *to, size_t i, Sums sums, float invstd) {
    if (to->dweight) kernel_store(&to->dweight[i], sums.second * (double)invstd, to->add_dweight);
    if (to->dbias) kernel_store(&to->dbias[i], sums.first, to->add_dbias);
}

static void multiply(const Block *block, const float *dy, const float *means, bool mask,
                     Sums *sums) {
    PartialSums partial[BLOCK] = {0};
    (mask ? add_masked_products : add_products)(block, dy, means + block->first, partial);
    for (size_t c = 0; c < block->channels; c++) sums[c] = sums_of(&partial[c]);
}

static void project_block(const Block *block, const float *dy, bool relu, const NormGradient *to,
                          const Sums *sums, double count) {
    const BatchNorm *norm = block->norm;
    Factors factors[BLOCK] = {0};
    for (size_t c = 0; c < block->channels; c++) {
        const size_t i = block->first + c;
        const double invstd = (double)norm->invstd[i];
        factors[c].mean = norm->mean[i];
        factors[c].slope = norm->invstd[i] * norm->weight[i];
        factors[c].dy_mean = (float)(sums[c].first / count);
        factors[c].lean = (float)(sums[c].second * invstd * invstd / count);
    }
    project(block, factors, dy, relu, to);
}

// ---- on one rank --------------------------------------------------------------------------------

static void cpu_batch_norm(const BatchNorm *norm, float *y) {
    if (norm->num_batches_tracked) *norm->num_batches_tracked += 1;
    if (norm->n * norm->inner == 0) return;
    for (Block block = {norm, 0, 0}; block_next(&block);) {
        Statistics of[BLOCK];
        measure(&block, of);
        for (size_t c = 0; c < block.channels; c++)
            store_running(norm, block.first + c, of[c], count_of(norm));
        normalize_block(&block, false, true, y);
    }
}

static void cpu_batch_norm_eval(const BatchNorm *norm, float *y) {
    for (Block block = {norm, 0, 0}; block_next(&block);) normalize_block(&block, true, true, y);
}

static void cpu_batch_norm_gradient(const BatchNorm *norm, float *dy, const NormGradient *to) {
    for (Block block = {norm, 0, 0}; block_next(&block);) {
        Sums sums[BLOCK];
        multiply(&block, dy, norm->mean, norm->relu, sums);
        for (size_t c = 0; c < block.channels; c++)
            store_parameters(to, block.first + c, sums[c], norm->invstd[block.first + c]);
        if (to->dx) project_block(&block, dy, norm->relu, to, sums, count_of(norm));
    }
}

static void cpu_batch_norm_eval_gradient(const BatchNorm *norm, const float *dy,
                                         const NormGradient *to) {
    for (Block block = {norm, 0, 0}; block_next(&block);) {
        Sums sums[BLOCK] = {0};
        Factors factors[BLOCK] = {0};
        if (to->dweight || to->dbias) multiply(&block, dy, norm->running_mean, false, sums);
        for (size_t c = 0; c < block.channels; c++) {
            const size_t i = block.first + c;
            const float invstd = eval_invstd(norm, i);
            store_parameters(to, i, sums[c], invstd);
            factors[c].slope = invstd * norm->weight[i];
        }
        if (to->dx) scale(&block, factors, dy, to);
    }
}

// ---- over several ranks -----------------------------------------------------------------------

static void cpu_batch_norm_statistics(const BatchNorm *norm) {
    for (size_t i = 0; norm->n * norm->inner == 0 && i < norm->c; i++)
        norm->mean[i] = norm->invstd[i] = 0;
    for (Block block = {norm, 0, 0}; norm->n * norm->inner > 0 && block_next(&block);) {
        Statistics of[BLOCK];
        measure(&block, of);
    }
}

// Merges the ranks' statistics of one channel: adds to the statistics of the first n elements those
// of one rank after the other (PyTorch's batch_norm_gather_stats, Chan's algorithm).
static Statistics merge_channel(const float *rows, size_t ranks, size_t c, size_t i, float eps) {
    Statistics all = {0, 0};
    double n = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        const float *row = rows + rank * (2 * c + 1);
        double mean = (double)row[i], invstd = (double)row[c + i], count = (double)row[2 * c];
        if (count < 1) continue;
        double squares = (1 / (invstd * invstd) - (double)eps) * count;
        if (squares < 0) squares = 0; // rounding can do that when all x of the rank are equal
        double apart = all.mean - mean, factor = 1 / (n + count);
        all.squares += squares + apart * apart * n * count * factor;
        all.mean = n * factor * all.mean + count * factor * mean;
        n += count;
    }
    return all;
}

static void cpu_batch_norm_merge(const BatchNorm *norm, const float *rows, size_t ranks,
                                 double *all_count) {
    double count = 0;
    for (size_t rank = 0; rank < ranks; rank++)
        count += (double)rows[rank * (2 * norm->c + 1) + 2 * norm->c];
    for (size_t i = 0; count > 1 && i < norm->c; i++) {
        Statistics all = merge_channel(rows, ranks, norm->c, i, norm->eps);
        store_statistics(norm, i, all, count);
        store_running(norm, i, all, count);
    }
    *all_count = count;
}

static void cpu_batch_norm_apply(const BatchNorm *norm, float *y) {
    for (Block block = {norm, 0, 0}; block_next(&block);) normalize_block(&block, false, false, y);
}

static void cpu_batch_norm_gradient_sums(const BatchNorm *norm, const float *dy, float *sums,
                                         const NormGradient *to) {
    for (Block block = {norm, 0, 0}; block_next(&block);) {
        Sums own[BLOCK];
        multiply(&block, dy, norm->mean, false, own);
        for (size_t c = 0; c < block.channels; c++) {
            const size_t i = block.first + c;
            sums[i] = (float)own[c].first;
            sums[norm->c + i] = (float)own[c].second;
            store_parameters(to, i, own[c], norm->invstd[i]);
        }
    }
}

static void cpu_batch_norm_gradient_apply(const BatchNorm *norm, const float *dy, const float *sums,
                                          const double *count, const NormGradient *to) {
    for (Block block = {norm, 0, 0}; block_next(&block);) {
        Sums all[BLOCK];
        for (size_t c = 0; c < block.channels; c++) {
            const size_t i = block.first + c;
            all[c] = (Sums){(double)sums[i], (double)sums[norm->c + i]};
        }
        project_block(&block, dy, false, to, all, *count);
    }
}

const NormKernels cpu_norm = {
    .batch_norm = cpu_batch_norm,
    .batch_norm_eval = cpu_batch_norm_eval,
    .batch_norm_gradient = cpu_batch_norm_gradient,
    .batch_norm_eval_gradient = cpu_batch_norm_eval_gradient,
    .batch_norm_statistics = cpu_batch_norm_statistics,
    .batch_norm_merge = cpu_batch_norm_merge,
    .batch_norm_apply = cpu_batch_norm_apply,
    .batch_norm_gradient_sums = cpu_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = cpu_batch_norm_gradient_apply,
};
