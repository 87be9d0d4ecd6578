/* transformer.cu: embedding and layer norm. Attention has a file of its own.
 *
 * Sums are LaneSums, over lanes in double, in a fixed order: over a row by one warp, over the rows
 * of a token by one thread, from the first to the last, and over all rows in two stages (norm.cuh).
 */
#include <math.h>

#include "common/device/cuda/norm.cuh"

// ---- embedding ----------------------------------------------------------------------------------

static __device__ bool is_token(const Embedding &of, size_t row) {
    return of.tokens[row] >= 0 && (uint64_t)of.tokens[row] < of.vocabulary;
}

static void cuda_embedding(const Embedding *embedding, const float *wte, const float *wpe,
                           float *y) {
    const Embedding of = *embedding;
    if (of.rows * of.channels == 0) return;
    cuda_run_blocks(grid_of(cuda_current(), of.rows, 1), [=] __device__() {
        for (size_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
            bool known = is_token(of, row);
            const float *word = wte + (known ? (size_t)of.tokens[row] * of.channels : 0);
            const float *place = wpe + row % of.length * of.channels;
            for (size_t j = threadIdx.x; j < of.channels; j += CUDA_BLOCK)
                y[row * of.channels + j] = known ? word[j] + place[j] : NAN;
        }
    });
}

// Needs none: the rows of a token are found by looking at all tokens.
static size_t cuda_embedding_workspace(const Embedding *of) {
    (void)of;
    return 0;
}

// Whether an earlier row has the same token. All threads of the block get the answer.
static __device__ bool came_before(const int64_t *tokens, size_t row) {
    for (size_t first = 0; first < row; first += CUDA_BLOCK) {
        size_t other = first + threadIdx.x;
        if (__syncthreads_or(other < row && tokens[other] == tokens[row])) return true;
    }
    return false;
}

// Which rows of [first, first + CUDA_BLOCK) have the token, in their order. Returns how many. The
// barrier of flags_before separates a call from the reads of `found` before it.
static __device__ unsigned find_rows(const Embedding &of, int64_t token, size_t first,
                                     size_t found[CUDA_BLOCK]) {
    size_t row = first + threadIdx.x;
    bool mine = row < of.rows && of.tokens[row] == token;
    unsigned all, before = flags_before(mine, &all);
    if (mine) found[before] = row;
    __syncthreads();
    return all;
}

// A block per row and CUDA_BLOCK channels. The block of a token's first row adds up all of its
// rows, the others have nothing to do: no two blocks write to one place, so no atomics are needed,
// and the order of a sum is that of the rows.
static __global__ void embedding_gradient_kernel(Embedding of, const float *dy, float *dwte) {
    __shared__ size_t found[CUDA_BLOCK];
    size_t row = blockIdx.x, channel = (size_t)blockIdx.y * CUDA_BLOCK + threadIdx.x;
    if (!is_token(of, row) || came_before(of.tokens, row)) return; // the whole block
    int64_t token = of.tokens[row];
    LaneSum sum = {};
    for (size_t first = row; first < of.rows; first += CUDA_BLOCK) {
        unsigned count = find_rows(of, token, first, found);
        for (unsigned i = 0; channel < of.channels && i < count; i++)
            sum.add(dy[found[i] * of.channels + channel]);
    }
    if (channel < of.channels) put(&dwte[(size_t)token * of.channels + channel], sum.value(), true);
}

static void cuda_embedding_gradient(const Embedding *of, const float *dy, float *dwte,
                                    bool accumulate, void *workspace) {
    CudaDevice *cuda = cuda_current();
    size_t count = of->vocabulary * of->channels;
    (void)workspace;
    if (!accumulate) cuda_clear(dwte, count * sizeof *dwte);
    if (of->rows * count == 0) return;
    dim3 grid((unsigned)of->rows, (unsigned)((of->channels + CUDA_BLOCK - 1) / CUDA_BLOCK));
    cuda_launch(cuda, embedding_gradient_kernel, grid, *of, dy, dwte);
}

static void cuda_position_gradient(const Embedding *embedding, const float *dy, float *dwpe,
                                   bool accumulate) {
    const Embedding of = *embedding;
    size_t count = of.length * of.channels;
    cuda_run(count, [=] __device__() {
        Walk walk = walk_grid(of.length, of.channels);
        FOR_EACH(i, count) {
            LaneSum sum = {};
            for (size_t row = walk.row; row < of.rows; row += of.length)
                if (is_token(of, row)) sum.add(dy[row * of.channels + walk.column]);
            put(&dwpe[i], sum.value(), accumulate);
            walk.next();
        }
    });
}

// ---- layer norm: a warp per row -----------------------------------------------------------------

static void cuda_layer_norm(const LayerNorm *of, float *y) {
    const LayerNorm norm = *of;
    size_t channels = norm.channels;
    if (norm.rows * channels == 0) return;
    cuda_run_blocks(grid_of(cuda_current(), norm.rows, WARPS), [=] __device__() {
        FOR_EACH_ROW(row, lane, norm.rows) {
            const float *x = norm.x + row * channels;
            LaneSum sum = {}, squares = {};
            for (size_t j = lane; j < channels; j += CUDA_WARP) sum.add(x[j]);
            double mean = warp_sum(sum.value()) / (double)channels;
            float center = (float)mean;
            double offset = mean - center;
            for (size_t j = lane; j < channels; j += CUDA_WARP) squares.add_square(x[j] - center);
            double variance = warp_sum(squares.value()) / (double)channels - offset * offset;
            float invstd = (float)(1 / sqrt(fmax(variance, 0.0) + (double)norm.eps));
            for (size_t j = lane; j < channels; j += CUDA_WARP)
                y[row * channels + j] = (x[j] - center) * invstd * norm.weight[j] + norm.bias[j];
            if (lane == 0) norm.mean[row] = center, norm.invstd[row] = invstd;
        }
    });
}

// With g = dy weight: dx (+)= invstd (g - mean(g) - normal mean(g normal)), means over the row.
static void input_gradient(const LayerNorm *of, const float *dy, float *dx, bool accumulate) {
    const LayerNorm norm = *of;
    size_t channels = norm.channels;
    if (norm.rows == 0) return;
    cuda_run_blocks(grid_of(cuda_current(), norm.rows, WARPS), [=] __device__() {
        FOR_EACH_ROW(row, lane, norm.rows) {
            const float *x = norm.x + row * channels, *from = dy + row * channels;
            float mean = norm.mean[row], invstd = norm.invstd[row];
            LaneSum sum = {}, product = {};
            for (size_t j = lane; j < channels; j += CUDA_WARP) {
                float g = from[j] * norm.weight[j];
                sum.add(g);
                product.add(g * ((x[j] - mean) * invstd));
            }
            float level = (float)(warp_sum(sum.value()) / (double)channels);
            float lean = (float)(warp_sum(product.value()) / (double)channels);
            for (size_t j = lane; j < channels; j += CUDA_WARP) {
                float normal = (x[j] - mean) * invstd, g = from[j] * norm.weight[j];
                put(&dx[row * channels + j], invstd * (g - level - normal * lean), accumulate);
            }
        }
    });
}

struct RowProducts { // dy, and dy times the normalized x; the statistics are the row's
    const float *mean, *invstd;
    float center, scale;
    __device__ void enter(size_t) {}
    __device__ void enter_row(size_t row) {
        center = mean[row];
        scale = invstd[row];
    }
    __device__ void add(LaneSums *sums, float x, float dy) const {
        float normal = (x - center) * scale;
        sums->first.add(dy);
        sums->second.add(dy * normal);
    }
};

static void parameter_gradients(const LayerNorm *norm, const float *dy, const NormGradient *of) {
    const NormGradient to = *of;
    CudaDevice *cuda = cuda_current();
    const ChannelSums sums = plan_sums(cuda, norm->rows, norm->channels, 1);
    sum_channels(cuda, sums, RowProducts{norm->mean, norm->invstd, 0, 0}, {}, norm->x, dy);
    cuda_run(sums.c, [=] __device__() {
        FOR_EACH(j, sums.c) {
            Sums sum = {0, 0};
            for (size_t i = 0; i < sums.splits; i++) {
                sum.first += sums.parts[i * sums.c + j].first;
                sum.second += sums.parts[i * sums.c + j].second;
            }
            if (to.dweight) put(&to.dweight[j], sum.second, to.add_dweight);
            if (to.dbias) put(&to.dbias[j], sum.first, to.add_dbias);
        }
    });
}

static void cuda_layer_norm_gradient(const LayerNorm *norm, const float *dy,
                                     const NormGradient *to) {
    if (norm->channels == 0) return;
    if (to->dweight || to->dbias) parameter_gradients(norm, dy, to);
    if (to->dx) input_gradient(norm, dy, to->dx, to->add_dx);
}

extern "C" const TransformerKernels cuda_transformer = {
    .embedding = cuda_embedding,
    .embedding_workspace = cuda_embedding_workspace,
    .embedding_gradient = cuda_embedding_gradient,
    .position_gradient = cuda_position_gradient,
    .layer_norm = cuda_layer_norm,
    .layer_norm_gradient = cuda_layer_norm_gradient,
    .attention_saved = cuda_attention_saved,
    .attention_workspace = cuda_attention_workspace,
    .attention = cuda_attention,
    .attention_gradient = cuda_attention_gradient,
};
