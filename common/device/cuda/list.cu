/* list.cu: work on a list of tensors in one launch.
 *
 * A model has dozens of parameters, most of them small: a launch for each would cost more than the
 * work. So a launch takes a List, which travels as the kernel's argument: there is nothing to
 * allocate, to copy or to keep alive. A tensor is cut into pieces of PIECE elements, every block
 * takes one piece, and finds out from its number which. Longer lists take several launches.
 */
#include <float.h>

#include "common/device/cuda/half.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
#define SQUARE_SUM_INLINE static inline __device__
#include "common/device/square_sum.h"
}

enum { LIST = 64, PIECE = 16 * CUDA_BLOCK };

template <typename Item> struct List {
    Item items[LIST];
    unsigned first[LIST + 1]; // item i has the pieces from first[i] to before first[i + 1]
    unsigned count;
};

template <typename Item> struct Piece { // of one block
    const Item &item;
    size_t begin, end;
};

template <typename Item> static __device__ Piece<Item> piece_here(const List<Item> &list) {
    unsigned chosen = 0;
    while (blockIdx.x >= list.first[chosen + 1]) chosen++;
    const Item &item = list.items[chosen];
    size_t begin = (size_t)(blockIdx.x - list.first[chosen]) * PIECE;
    return {item, begin, begin + PIECE < item.count ? begin + PIECE : item.count};
}

// Work is a struct with the operation on the items. apply<WIDTH>(item, i) does vector
// number i of an item, where WIDTH is 1 unless is_wide(item).
template <typename Work, typename Item>
static __global__ void list_kernel(Work work, List<Item> list) {
    const Piece<Item> piece = piece_here(list);
    size_t single = is_wide(piece.item) ? piece.end / WIDE * WIDE : piece.begin; // from here on
    for (size_t i = piece.begin / WIDE + threadIdx.x; i < single / WIDE; i += CUDA_BLOCK)
        work.template apply<WIDE>(piece.item, i);
    for (size_t i = single + threadIdx.x; i < piece.end; i += CUDA_BLOCK)
        work.template apply<1>(piece.item, i);
}

template <typename Item> static void list_add(List<Item> *list, const Item &item) {
    list->items[list->count] = item;
    list->first[list->count + 1] =
        list->first[list->count] + (unsigned)((item.count + PIECE - 1) / PIECE);
    list->count++;
}

// Calls launch(list, number of its pieces) for the items item_at(0), item_at(1), ... that are not
// empty, up to LIST at a time.
template <typename ItemAt, typename Launch>
static void for_lists(size_t count, const ItemAt &item_at, const Launch &launch) {
    List<decltype(item_at(0))> list = {};
    for (size_t i = 0; i < count; i++) {
        const auto item = item_at(i);
        if (item.count > 0) list_add(&list, item);
        if (list.count == 0 || (list.count < LIST && i + 1 < count)) continue;
        launch(list, list.first[list.count]);
        list.count = 0;
    }
}

// Does the work with the items.
template <typename Work, typename ItemAt>
static void for_list(size_t count, const Work &work, const ItemAt &item_at) {
    using Item = decltype(item_at(0));
    for_lists(count, item_at, [&](const List<Item> &list, unsigned pieces) {
        cuda_launch(cuda_current(), list_kernel<Work, Item>, pieces, work, list);
    });
}

// ---- slices ---------------------------------------------------------------------------------

static __device__ bool is_wide(const Slice &slice) {
    return is_wide(slice.data);
}

struct Unscale {
    float factor, *not_finite;

    template <int WIDTH> __device__ void apply(const Slice &slice, size_t i) const {
        Vector<float, WIDTH> x = vector_load<WIDTH>(slice.data, i);
        for (int k = 0; k < WIDTH; k++) {
            if (!(fabsf(x.at[k]) <= FLT_MAX)) // several threads may write
                atomicExch(reinterpret_cast<unsigned *>(not_finite), __float_as_uint(1));
            x.at[k] *= factor;
        }
        vector_store(slice.data, i, x);
    }
};

static void cuda_unscale(const Slice *slices, size_t slice_count, float factor, float *not_finite) {
    for_list(slice_count, Unscale{factor, not_finite}, [=](size_t i) { return slices[i]; });
}

// Two integers that hold squares as multiples of 2^(base - 149) and 2^(base - RANGE - 149). Each of
// up to PIECE = 2^12 squares is a mantissa of 24 bits, shifted by less than RANGE: 63 bits suffice.
struct SquareWindow {
    enum { RANGE = 27 };
    int base;
    long long high, low;

    // Returns whether the square has a place here.
    __device__ bool add(Square square) {
        const bool is_high = square.exponent >= base;
        const int shift = square.exponent - (is_high ? base : base - RANGE);
        if (shift >= 0) (is_high ? high : low) += (long long)square.mantissa << shift;
        return shift >= 0;
    }
};

static __device__ void atomic_add(int64_t *sum, int64_t value) {
    atomicAdd(reinterpret_cast<unsigned long long *>(sum), (unsigned long long)value);
}

// Blocks may add their integers in any order.
static __device__ void atomic_sum_add(int64_t *sum, int64_t value, int exponent) {
    int64_t words[3];
    const int limb = square_words(value, exponent, words);
    for (int k = 0; k < 3; k++)
        if (words[k] > 0) atomic_add(sum + limb + k, words[k]);
}

// Adds the squares of a block's piece. The window is below the largest one; squares that are
// below the window, or not finite, are added one by one.
static __global__ void squares_kernel(List<Slice> list, int64_t *sum) {
    enum { EACH = PIECE / CUDA_BLOCK };
    const Piece<Slice> piece = piece_here(list);
    Square squares[EACH];
    int largest = 0;
    for (int k = 0; k < EACH; k++) {
        size_t i = piece.begin + threadIdx.x + (size_t)k * CUDA_BLOCK;
        float x = i < piece.end ? piece.item.data[i] : 0;
        squares[k] = square_of(__fmul_rn(x, x));
        if (squares[k].exponent < SQUARE_SPECIAL) largest = max(largest, squares[k].exponent);
    }
    largest = block_max(largest);
    SquareWindow window = {max(largest - SquareWindow::RANGE + 1, +SquareWindow::RANGE), 0, 0};
    for (int k = 0; k < EACH; k++) {
        if (squares[k].exponent == SQUARE_SPECIAL)
            atomic_add(sum + square_special_entry(squares[k]), 1);
        else if (squares[k].mantissa > 0 && !window.add(squares[k]))
            atomic_sum_add(sum, squares[k].mantissa, squares[k].exponent);
    }
    window.high = block_sum(window.high);
    window.low = block_sum(window.low);
    if (threadIdx.x != 0) return;
    atomic_sum_add(sum, window.high, window.base);
    atomic_sum_add(sum, window.low, window.base - SquareWindow::RANGE);
}

static void cuda_squares(const Slice *slices, size_t slice_count, bool accumulate, int64_t *sum) {
    if (!accumulate)
        cuda_run(SQUARES_SIZE, [=] __device__() { FOR_EACH(i, SQUARES_SIZE) sum[i] = 0; });
    for_lists(
        slice_count, [=](size_t i) { return slices[i]; },
        [=](const List<Slice> &list, unsigned pieces) {
            cuda_launch(cuda_current(), squares_kernel, pieces, list, sum);
        });
    cuda_run(1, [=] __device__() { FOR_EACH(i, 1) square_sum_carry(sum); });
}

struct Clip {
    double max_norm;
    const double *norm;

    template <int WIDTH> __device__ void apply(const Slice &slice, size_t i) const {
        double factor = max_norm / (*norm + 1e-6);
        if (factor >= 1) return;
        Vector<float, WIDTH> x = vector_load<WIDTH>(slice.data, i);
        for (int k = 0; k < WIDTH; k++) x.at[k] *= (float)factor;
        vector_store(slice.data, i, x);
    }
};

static void cuda_clip(const Slice *slices, size_t slice_count, double max_norm, const int64_t *sum,
                      double *norm) {
    cuda_run(1, [=] __device__() { FOR_EACH(i, 1) *norm = square_sum_root(sum); });
    for_list(slice_count, Clip{max_norm, norm}, [=](size_t i) { return slices[i]; });
}

struct Transfer {
    float *to;
    const float *from;
    size_t count;
};

static __device__ bool is_wide(const Transfer &transfer) {
    return is_wide(transfer.to, transfer.from);
}

struct Copy {
    template <int WIDTH> __device__ void apply(const Transfer &transfer, size_t i) const {
        vector_store(transfer.to, i, vector_load<WIDTH>(transfer.from, i));
    }
};

static void cuda_pack(float *y, const Slice *slices, size_t slice_count) {
    for_list(slice_count, Copy{}, [&](size_t i) {
        y += slices[i].count;
        return Transfer{y - slices[i].count, slices[i].data, slices[i].count};
    });
}

static void cuda_unpack(const Slice *slices, size_t slice_count, const float *x) {
    for_list(slice_count, Copy{}, [&](size_t i) {
        x += slices[i].count;
        return Transfer{slices[i].data, x - slices[i].count, slices[i].count};
    });
}

extern "C" const SliceKernels cuda_slices = {
    .unscale = cuda_unscale,
    .squares = cuda_squares,
    .clip = cuda_clip,
    .pack = cuda_pack,
    .unpack = cuda_unpack,
};

// ---- optimizers -----------------------------------------------------------------------------

// Stores vector number i of the new weights in 16 bits, if the tensor keeps them so, too.
template <int WIDTH>
static __device__ void store_copy(Precision precision, uint16_t *copy, size_t i,
                                  const Vector<float, WIDTH> &weight) {
    Vector<uint16_t, WIDTH> bits;
    if (!copy) return;
    for (int k = 0; k < WIDTH; k++)
        bits.at[k] = precision == PRECISION_F16
                         ? __half_as_ushort(narrowed<__half>(weight.at[k]))
                         : __bfloat16_as_ushort(narrowed<__nv_bfloat16>(weight.at[k]));
    vector_store(copy, i, bits);
}

static __device__ bool is_wide(const SgdTensor &t) {
    return is_wide(t.weight, t.gradient, t.velocity, t.copy);
}

struct Sgd {
    float momentum, weight_decay;
    bool nesterov;
    Precision copies;

    template <int WIDTH> __device__ void apply(const SgdTensor &t, size_t i) const {
        Vector<float, WIDTH> weight = vector_load<WIDTH>(t.weight, i), velocity = {};
        Vector<float, WIDTH> gradient = vector_load<WIDTH>(t.gradient, i);
        bool remembers = momentum != 0;
        float lr = t.scalars[SCALAR_LR];
        // Undefined before the first step: may be NaN.
        if (remembers && !t.first) velocity = vector_load<WIDTH>(t.velocity, i);
        for (int k = 0; k < WIDTH; k++) {
            float g = gradient.at[k] + weight_decay * weight.at[k];
            float v = momentum * velocity.at[k] + g;
            velocity.at[k] = v;
            weight.at[k] -= lr * (nesterov ? g + momentum * v : v);
        }
        if (remembers) vector_store(t.velocity, i, velocity);
        vector_store(t.weight, i, weight);
        store_copy(copies, t.copy, i, weight);
    }
};

static void cuda_sgd(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count,
                     const OptimizerPeer *peer) {
    CHECK(!peer, "a peer's memory, which a GPU does not access");
    Sgd work = {(float)config->momentum, (float)config->weight_decay, config->nesterov,
                config->copies};
    for_list(tensor_count, work, [=](size_t i) { return tensors[i]; });
}

static __device__ bool is_wide(const AdamTensor &t) {
    return is_wide(t.weight, t.gradient, t.exp_avg, t.exp_avg_sq, t.copy);
}

struct Adam {
    float new1, keep2, new2, eps, weight_decay;
    Precision copies;

    template <int WIDTH> __device__ void apply(const AdamTensor &t, size_t i) const {
        Vector<float, WIDTH> weight = vector_load<WIDTH>(t.weight, i);
        Vector<float, WIDTH> gradient = vector_load<WIDTH>(t.gradient, i);
        Vector<float, WIDTH> exp_avg = vector_load<WIDTH>(t.exp_avg, i);
        Vector<float, WIDTH> exp_avg_sq = vector_load<WIDTH>(t.exp_avg_sq, i);
        float keep = t.scalars[SCALAR_KEEP], step_size = t.scalars[SCALAR_STEP_SIZE];
        float bias_correction = t.scalars[SCALAR_BIAS_CORRECTION];
        for (int k = 0; k < WIDTH; k++) {
            float g = gradient.at[k] + weight_decay * weight.at[k];
            float m = exp_avg.at[k] + new1 * (g - exp_avg.at[k]);
            float v = keep2 * exp_avg_sq.at[k] + new2 * g * g;
            exp_avg.at[k] = m;
            exp_avg_sq.at[k] = v;
            float denominator = sqrtf(v) / bias_correction + eps;
            weight.at[k] = weight.at[k] * keep - step_size * (m / denominator);
        }
        vector_store(t.weight, i, weight);
        store_copy(copies, t.copy, i, weight);
        vector_store(t.exp_avg, i, exp_avg);
        vector_store(t.exp_avg_sq, i, exp_avg_sq);
    }
};

static void cuda_adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count,
                      const OptimizerPeer *peer) {
    CHECK(!peer, "a peer's memory, which a GPU does not access");
    Adam work = {(float)(1 - config->beta1),  (float)config->beta2,
                 (float)(1 - config->beta2),  (float)config->eps,
                 (float)config->weight_decay, config->copies};
    for_list(tensor_count, work, [=](size_t i) { return tensors[i]; });
}

extern "C" const OptimizerKernels cuda_optimizer = {
    .sgd = cuda_sgd,
    .adam = cuda_adam,
};
