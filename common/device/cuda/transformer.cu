/* transformer.cu: embedding and layer norm. Attention has a file of its own.
 *
 * Sums are in double and in a fixed order: over a row by one warp, over the rows of a token by one
 * thread, from the first to the last, and over all rows in two stages (reduce.cuh).
 */
#include <math.h>

#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

enum { WARPS = CUDA_BLOCK / CUDA_WARP };

static __device__ void put_sum(float *place, double sum, bool accumulate) {
    put(place, (float)sum, accumulate);
}

// Blocks for work of which each block takes `each` at a time, and comes back for more.
static unsigned grid_of(const CudaDevice *cuda, size_t count, size_t each) {
    size_t needed = (count + each - 1) / each, most = (size_t)cuda->processors * 8;
    return (unsigned)(needed < most ? needed : most);
}

// ---- embedding ----------------------------------------------------------------------------------

static __device__ bool is_token(const Embedding &of, size_t row) {
    return of.tokens[row] >= 0 && (uint64_t)of.tokens[row] < of.vocabulary;
}

static __global__ void embedding_kernel(Embedding of, const float *wte, const float *wpe,
                                        float *y) {
    for (size_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
        bool known = is_token(of, row);
        const float *word = wte + (known ? (size_t)of.tokens[row] * of.channels : 0);
        const float *place = wpe + row % of.length * of.channels;
        for (size_t j = threadIdx.x; j < of.channels; j += CUDA_BLOCK)
            y[row * of.channels + j] = known ? word[j] + place[j] : NAN;
    }
}

static void cuda_embedding(const Embedding *of, const float *wte, const float *wpe, float *y) {
    CudaDevice *cuda = cuda_current();
    if (of->rows * of->channels > 0)
        cuda_launch(cuda, embedding_kernel, grid_of(cuda, of->rows, 1), *of, wte, wpe, y);
}

// Needs none: the rows of a token are found by looking at all tokens.
static size_t cuda_embedding_workspace(const Embedding *of) {
    (void)of;
    return 0;
}

// Does the token of this row stand in an earlier one? All threads of the block get the answer.
static __device__ bool came_before(const int64_t *tokens, size_t row) {
    for (size_t first = 0; first < row; first += CUDA_BLOCK) {
        size_t other = first + threadIdx.x;
        if (__syncthreads_or(other < row && tokens[other] == tokens[row])) return true;
    }
    return false;
}

// Which rows of [first, first + CUDA_BLOCK) have the token, in their order. Returns how many.
static __device__ unsigned find_rows(const Embedding &of, int64_t token, size_t first,
                                     size_t found[CUDA_BLOCK]) {
    __shared__ unsigned of_warp[WARPS];
    unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    size_t row = first + threadIdx.x;
    bool mine = row < of.rows && of.tokens[row] == token;
    unsigned lanes = __ballot_sync(0xffffffff, mine), before = 0, all = 0;
    if (lane == 0) of_warp[warp] = __popc(lanes);
    __syncthreads();
    for (unsigned i = 0; i < WARPS; i++) {
        before += i < warp ? of_warp[i] : 0;
        all += of_warp[i];
    }
    if (mine) found[before + __popc(lanes & ((1u << lane) - 1))] = row;
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
    double sum = 0;
    for (size_t first = row; first < of.rows; first += CUDA_BLOCK) {
        unsigned count = find_rows(of, token, first, found);
        for (unsigned i = 0; channel < of.channels && i < count; i++)
            sum += dy[found[i] * of.channels + channel];
        __syncthreads(); // before the next rows are found
    }
    if (channel < of.channels) put_sum(&dwte[(size_t)token * of.channels + channel], sum, true);
}

static void cuda_embedding_gradient(const Embedding *of, const float *dy, float *dwte,
                                    bool accumulate, void *workspace) {
    CudaDevice *cuda = cuda_current();
    size_t count = of->vocabulary * of->channels;
    (void)workspace;
    if (!accumulate && count > 0)
        CUDA(cudaMemsetAsync(dwte, 0, count * sizeof *dwte, cuda->compute));
    if (of->rows * count == 0) return;
    dim3 grid((unsigned)of->rows, (unsigned)((of->channels + CUDA_BLOCK - 1) / CUDA_BLOCK));
    cuda_launch(cuda, embedding_gradient_kernel, grid, *of, dy, dwte);
}

static __global__ void position_gradient_kernel(Embedding of, const float *dy, float *dwpe,
                                                bool accumulate) {
    Walk walk = walk_grid(of.length, of.channels);
    FOR_EACH(i, of.length * of.channels) {
        double sum = 0;
        for (size_t row = walk.row; row < of.rows; row += of.length)
            if (is_token(of, row)) sum += dy[row * of.channels + walk.column];
        put_sum(&dwpe[i], sum, accumulate);
        walk.next();
    }
}

static void cuda_position_gradient(const Embedding *of, const float *dy, float *dwpe,
                                   bool accumulate) {
    CudaDevice *cuda = cuda_current();
    size_t count = of->length * of->channels;
    if (count > 0)
        cuda_launch(cuda, position_gradient_kernel, cuda_grid(cuda, count), *of, dy, dwpe,
                    accumulate);
}

// ---- layer norm: a warp per row -----------------------------------------------------------------

// for every row once, over the grid's warps; `lane` is the thread's.
#define FOR_EACH_ROW(row, lane, rows)                                                     \
    const unsigned lane = threadIdx.x % CUDA_WARP;                                        \
    for (size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / CUDA_WARP; row < (rows); \
         row += (size_t)gridDim.x * WARPS)

static __global__ void layer_norm_kernel(LayerNorm norm, float *y) {
    size_t channels = norm.channels;
    FOR_EACH_ROW(row, lane, norm.rows) {
        const float *x = norm.x + row * channels;
        double sum = 0, squares = 0;
        for (size_t j = lane; j < channels; j += CUDA_WARP) sum += x[j];
        double mean = warp_sum(sum) / (double)channels;
        for (size_t j = lane; j < channels; j += CUDA_WARP)
            squares += (x[j] - mean) * (x[j] - mean);
        double variance = warp_sum(squares) / (double)channels;
        float center = (float)mean, invstd = (float)(1 / sqrt(variance + (double)norm.eps));
        for (size_t j = lane; j < channels; j += CUDA_WARP)
            y[row * channels + j] = (x[j] - center) * invstd * norm.weight[j] + norm.bias[j];
        if (lane == 0) norm.mean[row] = center, norm.invstd[row] = invstd;
    }
}

static void cuda_layer_norm(const LayerNorm *norm, float *y) {
    CudaDevice *cuda = cuda_current();
    if (norm->rows * norm->channels > 0)
        cuda_launch(cuda, layer_norm_kernel, grid_of(cuda, norm->rows, WARPS), *norm, y);
}

// With g = dy weight: dx (+)= invstd (g - mean(g) - normal mean(g normal)), means over the row.
static __global__ void layer_norm_input_kernel(LayerNorm norm, const float *dy, float *dx,
                                               bool accumulate) {
    size_t channels = norm.channels;
    FOR_EACH_ROW(row, lane, norm.rows) {
        const float *x = norm.x + row * channels, *from = dy + row * channels;
        float mean = norm.mean[row], invstd = norm.invstd[row];
        double sum = 0, product = 0;
        for (size_t j = lane; j < channels; j += CUDA_WARP) {
            float g = from[j] * norm.weight[j];
            sum += g;
            product += (double)g * ((x[j] - mean) * invstd);
        }
        float level = (float)(warp_sum(sum) / (double)channels);
        float lean = (float)(warp_sum(product) / (double)channels);
        for (size_t j = lane; j < channels; j += CUDA_WARP) {
            float normal = (x[j] - mean) * invstd, g = from[j] * norm.weight[j];
            put(&dx[row * channels + j], invstd * (g - level - normal * lean), accumulate);
        }
    }
}

struct ColumnSums {
    double weight, bias;
};

// First stage: parts[splits, channels]. A block takes 32 channels, and each of its warps every
// eighth row of the split.
static __global__ void layer_norm_columns_kernel(LayerNorm norm, const float *dy,
                                                 ColumnSums *parts) {
    __shared__ ColumnSums of_warp[WARPS][CUDA_WARP];
    unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    size_t column = (size_t)blockIdx.x * CUDA_WARP + lane, channels = norm.channels;
    size_t each = (norm.rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each;
    size_t end = first + each < norm.rows ? first + each : norm.rows;
    ColumnSums own = {0, 0};
    for (size_t row = first + warp; column < channels && row < end; row += WARPS) {
        float g = dy[row * channels + column];
        float normal = (norm.x[row * channels + column] - norm.mean[row]) * norm.invstd[row];
        own.weight += (double)g * normal;
        own.bias += g;
    }
    of_warp[warp][lane] = own;
    __syncthreads();
    if (warp > 0 || column >= channels) return;
    for (unsigned i = 1; i < WARPS; i++) {
        own.weight += of_warp[i][lane].weight;
        own.bias += of_warp[i][lane].bias;
    }
    parts[blockIdx.y * channels + column] = own;
}

static __global__ void layer_norm_parameters_kernel(const ColumnSums *parts, size_t splits,
                                                    size_t channels, NormGradient to) {
    FOR_EACH(j, channels) {
        ColumnSums sum = {0, 0};
        for (size_t i = 0; i < splits; i++) {
            sum.weight += parts[i * channels + j].weight;
            sum.bias += parts[i * channels + j].bias;
        }
        if (to.dweight) put_sum(&to.dweight[j], sum.weight, to.add_dweight);
        if (to.dbias) put_sum(&to.dbias[j], sum.bias, to.add_dbias);
    }
}

// How many splits there are depends on the shape alone.
static void column_gradients(CudaDevice *cuda, const LayerNorm *norm, const float *dy,
                             const NormGradient *to) {
    size_t groups = (norm->channels + CUDA_WARP - 1) / CUDA_WARP;
    size_t wanted = (REDUCE_BLOCKS + groups - 1) / groups, most = (norm->rows + 63) / 64;
    size_t splits = wanted < most ? wanted : most;
    ColumnSums *parts =
        (ColumnSums *)cuda_workspace(cuda, splits * norm->channels * sizeof(ColumnSums));
    if (splits > 0)
        cuda_launch(cuda, layer_norm_columns_kernel, dim3((unsigned)groups, (unsigned)splits),
                    *norm, dy, parts);
    cuda_launch(cuda, layer_norm_parameters_kernel, cuda_grid(cuda, norm->channels), parts, splits,
                norm->channels, *to);
}

static void cuda_layer_norm_gradient(const LayerNorm *norm, const float *dy,
                                     const NormGradient *to) {
    CudaDevice *cuda = cuda_current();
    if (norm->channels == 0) return;
    if (to->dweight || to->dbias) column_gradients(cuda, norm, dy, to);
    if (to->dx && norm->rows > 0)
        cuda_launch(cuda, layer_norm_input_kernel, grid_of(cuda, norm->rows, WARPS), *norm, dy,
                    to->dx, to->add_dx);
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
