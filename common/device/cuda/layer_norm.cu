/* layer_norm.cu: layer norm of a transformer's residual stream in 16 bits: the sum with the branch
 * that comes in 16 bits, the norm and the rounding of its output are one pass over memory, and so
 * are the gradients of the input, of the branch, of weight and bias. (In float32: transformer.cu.)
 *
 * Backward, a block takes eight rows at a time: first a warp per row sums over the row, then a
 * thread per vector of columns computes these columns of the eight rows, which are in the cache
 * then, and accumulates its columns' sums. Sums over blocks are a tree: the block that arrives last
 * of TREE neighbours adds their parts, and the last of those adds the groups' parts. The order of
 * additions depends on the shape alone.
 */
#include <math.h>

#include "common/device/cuda/norm.cuh"

// Elements j, ... of x widened to float.
template <int WIDTH, typename T>
static __device__ Vector<float, WIDTH> load_wide(const T *x, size_t j) {
    const Vector<T, WIDTH> from = vector_load<WIDTH>(x, j);
    Vector<float, WIDTH> to;
    for (int k = 0; k < WIDTH; k++) to.at[k] = widened(from.at[k]);
    return to;
}

template <int WIDTH, typename T>
static __device__ void store_narrow(T *y, size_t j, const Vector<float, WIDTH> &from) {
    Vector<T, WIDTH> to;
    for (int k = 0; k < WIDTH; k++) narrow_to(&to.at[k], from.at[k]);
    vector_store(y, j, to);
}

// ---- forward ------------------------------------------------------------------------------------

// A row's sum with the branch, stored where there is one. Returns its lane's sum of the elements.
template <int WIDTH, typename T>
static __device__ LaneSum add_branch(const float *x, const T *branch, float *sum, size_t vectors) {
    LaneSum total = {};
    for (size_t j = threadIdx.x % CUDA_WARP; j < vectors; j += CUDA_WARP) {
        Vector<float, WIDTH> at = vector_load<WIDTH>(x, j);
        if (branch) {
            const Vector<float, WIDTH> more = load_wide<WIDTH>(branch, j);
            for (int k = 0; k < WIDTH; k++) at.at[k] += more.at[k];
            vector_store(sum, j, at);
        }
        for (int k = 0; k < WIDTH; k++) total.add(at.at[k]);
    }
    return total;
}

// A thread reads the elements of `sum` that it has written itself.
template <int WIDTH, typename T>
static __global__ void layer_norm_kernel(LayerNorm norm, const T *branch, float *sum, T *y) {
    const size_t channels = norm.channels, vectors = channels / WIDTH;
    FOR_EACH_ROW(row, lane, norm.rows) {
        const size_t first = row * channels;
        const T *added = branch ? branch + first : NULL;
        float *stored = branch ? sum + first : NULL;
        const LaneSum total = add_branch<WIDTH>(norm.x + first, added, stored, vectors);
        const float *x = branch ? stored : norm.x + first;
        const double mean = warp_sum(total.value()) / (double)channels;
        const float center = (float)mean;
        const double offset = mean - center;
        LaneSum squares = {};
        for (size_t j = lane; j < vectors; j += CUDA_WARP) {
            const Vector<float, WIDTH> at = vector_load<WIDTH>(x, j);
            for (int k = 0; k < WIDTH; k++) squares.add_square(at.at[k] - center);
        }
        const double variance = warp_sum(squares.value()) / (double)channels - offset * offset;
        const float invstd = (float)(1 / sqrt(fmax(variance, 0.0) + (double)norm.eps));
        for (size_t j = lane; j < vectors; j += CUDA_WARP) {
            Vector<float, WIDTH> at = vector_load<WIDTH>(x, j);
            const Vector<float, WIDTH> weight = vector_load<WIDTH>(norm.weight, j);
            const Vector<float, WIDTH> bias = vector_load<WIDTH>(norm.bias, j);
            for (int k = 0; k < WIDTH; k++)
                at.at[k] = (at.at[k] - center) * invstd * weight.at[k] + bias.at[k];
            store_narrow(y + first, j, at);
        }
        if (lane == 0) norm.mean[row] = center, norm.invstd[row] = invstd;
    }
}

template <typename T>
static void layer_norm(const LayerNorm *norm, const uint16_t *branch, float *sum, uint16_t *y) {
    const CudaDevice *cuda = cuda_current();
    const T *from = (const T *)branch;
    T *to = (T *)y;
    const unsigned blocks = grid_of(cuda, norm->rows, WARPS);
    if (norm->channels % WIDE == 0 &&
        is_wide(norm->x, norm->weight, norm->bias, branch ? sum : NULL, from, to))
        cuda_launch(cuda, layer_norm_kernel<WIDE, T>, blocks, *norm, from, sum, to);
    else
        cuda_launch(cuda, layer_norm_kernel<1, T>, blocks, *norm, from, sum, to);
}

void cuda_half_layer_norm(Precision precision, const LayerNorm *norm, const uint16_t *branch,
                          float *sum, uint16_t *y) {
    if (norm->rows * norm->channels > 0) BY_PRECISION(precision, layer_norm, norm, branch, sum, y);
}

// ---- backward -----------------------------------------------------------------------------------

enum { TREE = CUDA_ARRIVED - 1 }; // blocks of a group, and groups

static inline __host__ __device__ unsigned groups_of(unsigned blocks) {
    return (blocks + TREE - 1) / TREE;
}

enum { AT_ONCE = 4 }; // rows

struct ColumnParts {   // sums of dy, and of dy times the normalized x, over the rows of a block
    unsigned blocks;   // of the grid
    Sums *parts;       // [blocks + groups, channels], workspace
    unsigned *arrived; // [1 + groups], CudaDevice's
};

struct RowNumbers {
    float mean, invstd;
    float level, lean; // means over the row of g and of g times the normalized x, g = dy weight
};

// One row's, by a warp.
template <int WIDTH, typename T>
static __device__ RowNumbers row_numbers(const LayerNorm &norm, const T *dy, size_t row) {
    const size_t first = row * norm.channels;
    const float mean = norm.mean[row], invstd = norm.invstd[row];
    LaneSum sum = {}, product = {};
    for (size_t j = threadIdx.x % CUDA_WARP; j < norm.channels / WIDTH; j += CUDA_WARP) {
        const Vector<float, WIDTH> x = vector_load<WIDTH>(norm.x + first, j);
        const Vector<float, WIDTH> from = load_wide<WIDTH>(dy + first, j);
        const Vector<float, WIDTH> weight = vector_load<WIDTH>(norm.weight, j);
        for (int k = 0; k < WIDTH; k++) {
            const float g = from.at[k] * weight.at[k];
            sum.add(g);
            product.add(g * ((x.at[k] - mean) * invstd));
        }
    }
    const double count = (double)norm.channels;
    return {mean, invstd, (float)(warp_sum(sum.value()) / count),
            (float)(warp_sum(product.value()) / count)};
}

template <int WIDTH> struct RowVectors { // of one row and a thread's columns
    Vector<float, WIDTH> x, dy, dx;
};

template <int WIDTH, typename T> struct Columns { // a thread's vector of columns
    size_t j;
    Vector<float, WIDTH> weight;
    LaneSums sums[WIDTH];

    __device__ RowVectors<WIDTH> load_row(const LayerNorm &norm, const T *dy,
                                          const NormGradient &to, size_t row) const {
        const size_t first = row * norm.channels;
        RowVectors<WIDTH> at = {
            vector_load<WIDTH>(norm.x + first, j), load_wide<WIDTH>(dy + first, j), {}};
        if (to.dx && to.add_dx) at.dx = vector_load<WIDTH>(to.dx + first, j);
        return at;
    }

    // dx (+)= invstd (g - level - normal lean), dbranch = dx, and the sums of dy and dy normal.
    __device__ void take_row(const LayerNorm &norm, RowVectors<WIDTH> at, const NormGradient &to,
                             T *dbranch, const RowNumbers &of, size_t row) {
        const size_t first = row * norm.channels;
        for (int k = 0; k < WIDTH; k++) {
            const float dy = at.dy.at[k], g = dy * weight.at[k];
            const float normal = (at.x.at[k] - of.mean) * of.invstd;
            sums[k].first.add(dy);
            sums[k].second.add(dy * normal);
            put(&at.dx.at[k], of.invstd * (g - of.level - normal * of.lean), to.add_dx);
        }
        if (to.dx) vector_store(to.dx + first, j, at.dx);
        if (dbranch) store_narrow(dbranch + first, j, at.dx);
    }

    // Rows row, row + 1, ... of a block: loads those of several before the first store, which
    // might change them as far as the compiler knows, so that their latencies overlap.
    __device__ void take_rows(const LayerNorm &norm, const T *dy, const NormGradient &to,
                              T *dbranch, const RowNumbers *of, size_t row) {
        const size_t left = norm.rows - row;
        for (unsigned i = 0; i < WARPS && i < left; i += AT_ONCE) {
            RowVectors<WIDTH> at[AT_ONCE] = {};
#pragma unroll
            for (unsigned k = 0; k < AT_ONCE; k++)
                if (i + k < left) at[k] = load_row(norm, dy, to, row + i + k);
#pragma unroll
            for (unsigned k = 0; k < AT_ONCE; k++)
                if (i + k < left) take_row(norm, at[k], to, dbranch, of[i + k], row + i + k);
        }
    }
};

// The sum of column j's parts [first, first + count), count <= TREE, in their order. All are loaded
// before the first is added. (Volatile: other blocks wrote them while this one ran.)
static __device__ Sums add_parts(const ColumnParts &columns, size_t channels, size_t first,
                                 unsigned count, size_t j) {
    Sums part[TREE] = {}, total = {0, 0};
#pragma unroll
    for (unsigned i = 0; i < TREE; i++)
        if (i < count) {
            const volatile Sums *from = &columns.parts[(first + i) * channels + j];
            part[i] = {from->first, from->second};
        }
#pragma unroll
    for (unsigned i = 0; i < TREE; i++)
        total.first += part[i].first, total.second += part[i].second;
    return total;
}

// Adds the blocks' parts to the gradients of weight and bias.
static __device__ void add_columns(const ColumnParts &columns, size_t channels,
                                   const NormGradient &to) {
    const unsigned blocks = columns.blocks, groups = groups_of(blocks);
    const unsigned group = blockIdx.x / TREE, begin = group * TREE;
    const unsigned size = group + 1 < groups ? (unsigned)TREE : blocks - begin;
    if (!arrives_last(&columns.arrived[1 + group], size)) return;
    for (size_t j = threadIdx.x; j < channels; j += CUDA_BLOCK)
        columns.parts[(size_t)(blocks + group) * channels + j] =
            add_parts(columns, channels, begin, size, j);
    if (!arrives_last(columns.arrived, groups)) return;
    for (size_t j = threadIdx.x; j < channels; j += CUDA_BLOCK) {
        const Sums total = add_parts(columns, channels, blocks, groups, j);
        if (to.dweight) put(&to.dweight[j], total.second, to.add_dweight);
        if (to.dbias) put(&to.dbias[j], total.first, to.add_dbias);
    }
}

// A block loops over the rows once for each group of columns that it can hold.
template <int WIDTH, typename T>
static __global__ void layer_norm_gradient_kernel(LayerNorm norm, const T *dy, NormGradient to,
                                                  T *dbranch, ColumnParts parts) {
    __shared__ RowNumbers numbers[WARPS];
    const unsigned warp = threadIdx.x / CUDA_WARP;
    const size_t vectors = norm.channels / WIDTH;
    for (size_t chunk = 0; chunk < vectors; chunk += CUDA_BLOCK) {
        Columns<WIDTH, T> mine = {};
        mine.j = chunk + threadIdx.x;
        const bool is_mine = mine.j < vectors;
        if (is_mine) mine.weight = vector_load<WIDTH>(norm.weight, mine.j);
        for (size_t row = (size_t)blockIdx.x * WARPS; row < norm.rows; row += gridDim.x * WARPS) {
            const size_t left = norm.rows - row;
            __syncthreads(); // other threads still read numbers
            if (warp < left) {
                const RowNumbers own = row_numbers<WIDTH>(norm, dy, row + warp);
                if (threadIdx.x % CUDA_WARP == 0) numbers[warp] = own;
            }
            __syncthreads();
            if (is_mine) mine.take_rows(norm, dy, to, dbranch, numbers, row);
        }
        for (int k = 0; is_mine && k < WIDTH; k++)
            parts.parts[blockIdx.x * norm.channels + mine.j * WIDTH + k] = mine.sums[k].value();
    }
    if (to.dweight || to.dbias) add_columns(parts, norm.channels, to);
}

// One block for WARPS rows, at most TREE groups of TREE blocks; at least one, which writes the zero
// sums of no rows.
static unsigned gradient_blocks(size_t rows) {
    const size_t needed = (rows + WARPS - 1) / WARPS, most = TREE * TREE;
    return (unsigned)(needed < 1 ? 1 : needed < most ? needed : most);
}

template <typename T>
static void layer_norm_gradient(const LayerNorm *norm, const uint16_t *dy, const NormGradient *to,
                                uint16_t *dbranch) {
    CudaDevice *cuda = cuda_current();
    const unsigned blocks = gradient_blocks(norm->rows);
    const size_t parts_count = (blocks + groups_of(blocks)) * norm->channels;
    Sums *room = (Sums *)cuda_workspace(cuda, parts_count * sizeof(Sums));
    const ColumnParts parts = {blocks, room, cuda->arrived};
    const T *from = (const T *)dy;
    T *branch = (T *)dbranch;
    if (norm->channels % WIDE == 0 && is_wide(norm->x, norm->weight, to->dx, from, branch))
        cuda_launch(cuda, layer_norm_gradient_kernel<WIDE, T>, blocks, *norm, from, *to, branch,
                    parts);
    else
        cuda_launch(cuda, layer_norm_gradient_kernel<1, T>, blocks, *norm, from, *to, branch,
                    parts);
}

void cuda_half_layer_norm_gradient(Precision precision, const LayerNorm *norm, const uint16_t *dy,
                                   const NormGradient *to, uint16_t *dbranch) {
    if (norm->channels > 0) BY_PRECISION(precision, layer_norm_gradient, norm, dy, to, dbranch);
}
