/* loss.cu: losses of rows, their gradients, and how many predictions are right.
 *
 * A row of logits is one warp's work, or one block's where there are many classes; its threads
 * exchange numbers in registers or shared memory. A row's loss is a double, and so is the sum of
 * the rows (grid_sum): over a whole batch, float's rounding would show. A loss is one launch, and
 * so is its gradient. Of logits in 16 bits one launch computes the loss, the hits, and the gradient
 * in the place of the logits: they are as many bytes as all else in a language model's step, and
 * pass through memory twice.
 */
#include <math.h>

#include "common/device/cuda/half.cuh"
#include "common/device/cuda/map.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/kernels.h"
}

// ---- a number per row, and their sum --------------------------------------------------------

// The threads that work on one row.
struct Warp {
    static const unsigned threads = CUDA_WARP;
    template <typename T> static __device__ T sum(T value) { return warp_sum(value); }
    template <typename T> static __device__ T max(T value) { return warp_max(value); }
    static __device__ void sync() { __syncwarp(); }
};

struct Block {
    static const unsigned threads = CUDA_BLOCK;
    template <typename T> static __device__ T sum(T value) { return block_sum(value); }
    template <typename T> static __device__ T max(T value) { return block_max(value); }
    static __device__ void sync() {} // max has synchronized
};

enum { WARP_CLASSES = 1024 }; // more than that are a block's work

// Rows is a struct with a formula: evaluate<Team>(row, thread) returns the same to all the threads
// of the team. Finish consumes the sum of all rows.
template <typename Team, typename Rows, typename Finish>
static __global__ void rows_kernel(Rows rows, size_t n, GridSum room, Finish finish) {
    const unsigned teams = CUDA_BLOCK / Team::threads;
    unsigned team = threadIdx.x / Team::threads, thread = threadIdx.x % Team::threads;
    double own = 0;
    for (size_t row = (size_t)blockIdx.x * teams + team; row < n;
         row += (size_t)gridDim.x * teams) {
        double value = rows.template evaluate<Team>(row, thread);
        if (thread == 0) own += value;
    }
    grid_sum(own, room, finish);
}

template <typename Rows, typename Finish>
static void sum_rows(const Rows &rows, size_t n, size_t classes, const Finish &finish) {
    CudaDevice *cuda = cuda_current();
    bool few = classes <= WARP_CLASSES;
    GridSum room = grid_sum_room(cuda, n, few ? CUDA_BLOCK / CUDA_WARP : 1, 1);
    cuda_launch(cuda, few ? rows_kernel<Warp, Rows, Finish> : rows_kernel<Block, Rows, Finish>,
                room.blocks, rows, n, room, finish);
}

// ---- cross entropy --------------------------------------------------------------------------

static __device__ bool is_class(int64_t target, size_t classes) {
    return target >= 0 && (uint64_t)target < classes;
}

struct CrossEntropy {
    const float *logits;
    const int64_t *target;
    float *probabilities;
    size_t classes;

    // The exponential is computed twice: that is cheaper than to store and load it.
    template <typename Team> __device__ double evaluate(size_t row, unsigned thread) const {
        const float *x = logits + row * classes;
        float *p = probabilities + row * classes;
        float max = -INFINITY; // subtracted, so that no exponential overflows
        for (size_t j = thread; j < classes; j += Team::threads) max = Larger::of(max, x[j]);
        max = Team::max(max);
        LaneSum own = {};
        for (size_t j = thread; j < classes; j += Team::threads) own.add(expf(x[j] - max));
        double total = Team::sum(own.value());
        float share = (float)(1 / total);
        for (size_t j = thread; j < classes; j += Team::threads) p[j] = expf(x[j] - max) * share;
        int64_t label = target[row];
        return is_class(label, classes) ? log(total) - ((double)x[label] - max) : (double)NAN;
    }
};

static void cuda_cross_entropy(Labels labels, const float *logits, double divisor,
                               float *probabilities, float *loss) {
    CrossEntropy rows = {logits, labels.target, probabilities, labels.classes};
    sum_rows(rows, labels.n, labels.classes, Mean{divisor, loss});
}

static void cuda_cross_entropy_gradient(Labels labels, const float *probabilities,
                                        Upstream upstream, float *dlogits, bool accumulate) {
    size_t n = labels.n, classes = labels.classes;
    cuda_run(n * classes, [=] __device__() {
        float scale = (float)quotient(*upstream.gradient, upstream.divisor);
        Walk walk = walk_grid(n, classes);
        FOR_EACH(i, n * classes) {
            float onehot = (size_t)labels.target[walk.row] == walk.column ? 1.0f : 0.0f;
            put(&dlogits[i], (probabilities[i] - onehot) * scale, accumulate);
            walk.next();
        }
    });
}

// ---- cross entropy of logits in 16 bits -----------------------------------------------------

// One thread's share of a row: the vectors `thread`, thread + Team::threads, ... of WIDTH elements.
// The first KEPT vectors stay in registers; the others are read again in each visit, from the L2
// cache. Elements from `end` on, the padding, are -inf: no maximum, and a probability of 0.
template <typename Team, int WIDTH, int KEPT, typename T> struct Share {
    T *row;
    unsigned end, vectors, thread; // vectors: of the row
    Vector<T, WIDTH> kept[KEPT > 0 ? KEPT : 1];

    __device__ Vector<T, WIDTH> at(unsigned i) const {
        Vector<T, WIDTH> x = vector_load<WIDTH>((const T *)row, i);
        if ((i + 1) * WIDTH <= end) return x;
#pragma unroll
        for (unsigned k = 0; k < WIDTH; k++)
            if (i * WIDTH + k >= end) narrow_to(&x.at[k], -INFINITY);
        return x;
    }
    __device__ void load() {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            unsigned i = (unsigned)k * Team::threads + thread;
            if (i < vectors) kept[k] = at(i);
        }
    }
    // visit(a vector, its number in the row)
    template <typename Visit> __device__ void each(const Visit &visit) {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            unsigned i = (unsigned)k * Team::threads + thread;
            if (i < vectors) visit(kept[k], i);
        }
#pragma unroll 1
        for (unsigned i = KEPT * Team::threads + thread; i < vectors; i += Team::threads) {
            Vector<T, WIDTH> again = at(i);
            visit(again, i);
        }
    }
};

enum { SUM_LOSS, SUM_HITS, SUMS };

template <typename T> struct RowsInPlace {
    T *logits; // [n, pitch]
    const int64_t *target;
    unsigned classes, pitch;
    float scale; // of the gradient
    bool gradient;

    // Adds the row's loss and hit to the sums of one thread.
    template <typename Team, int WIDTH, int KEPT>
    __device__ void evaluate(size_t row, unsigned thread, double (&sums)[SUMS]) const {
        typedef Vector<T, WIDTH> V;
        Share<Team, WIDTH, KEPT, T> own = {
            logits + row * pitch, classes, pitch / WIDTH, thread, {}};
        own.load();
        const bool valid = is_class(target[row], classes);
        const unsigned label = valid ? (unsigned)target[row] : classes;
        const float wanted = valid ? widened(own.row[label]) : NAN;
        float max = -INFINITY; // subtracted, so that no exponential overflows
        own.each([&](const V &x, unsigned) {
#pragma unroll
            for (int k = 0; k < WIDTH; k++) max = fmaxf(max, widened(x.at[k]));
        });
        max = Team::max(max);
        Team::sync(); // all threads have read `wanted`
        LaneSum exponentials = {};
        own.each([&](const V &x, unsigned) {
            float sum = 0; // of a vector
#pragma unroll
            for (int k = 0; k < WIDTH; k++) sum += expf(widened(x.at[k]) - max);
            exponentials.add(sum);
        });
        const double total = Team::sum(exponentials.value());
        const bool hit = wanted == max && is_first<Team>(own, label, max);
        if (thread == 0) {
            sums[SUM_LOSS] += log(total) - ((double)wanted - max);
            sums[SUM_HITS] += hit;
        }
        if (gradient) replace<Team>(own, {label, wanted, max, (float)(1 / total)});
    }

    // Whether no element before the label equals the maximum, and none is NaN.
    template <typename Team, int WIDTH, int KEPT>
    __device__ bool is_first(Share<Team, WIDTH, KEPT, T> &own, unsigned label, float max) const {
        unsigned against = 0;
        own.each([&](const Vector<T, WIDTH> &x, unsigned i) {
#pragma unroll
            for (unsigned k = 0; k < WIDTH; k++) {
                float value = widened(x.at[k]);
                against |= value != value || (value == max && i * WIDTH + k < label);
            }
        });
        return Team::sum(against) == 0;
    }

    struct Softmax { // of a row
        unsigned label;
        float wanted, max, share;
        // Rounded before the one is subtracted.
        __device__ float of(float logit) const { return __fmul_rn(expf(logit - max), share); }
    };

    template <typename Team, int WIDTH, int KEPT>
    __device__ void replace(Share<Team, WIDTH, KEPT, T> &own, const Softmax &softmax) const {
        own.each([&](Vector<T, WIDTH> &x, unsigned i) {
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                narrow_to(&x.at[k], softmax.of(widened(x.at[k])) * scale);
            vector_store(own.row, i, x);
        });
        const unsigned label = softmax.label;
        if (label < classes && label / WIDTH % Team::threads == own.thread) // this thread's element
            narrow_to(&own.row[label], (softmax.of(softmax.wanted) - 1) * scale);
    }
};

struct MeanAndHits {
    Mean mean;
    int64_t *correct; // [1]
    __device__ void operator()(const double *sums) const {
        mean(sums[SUM_LOSS]);
        *correct = (int64_t)sums[SUM_HITS];
    }
};

// Two blocks of 8 warps on a processor: while one computes, the other loads.
template <typename Team, int WIDTH, int KEPT, typename T>
static __global__ void __launch_bounds__(CUDA_BLOCK, 2)
    cross_entropy_in_place_kernel(RowsInPlace<T> rows, size_t n, GridSum room, MeanAndHits finish) {
    const unsigned teams = CUDA_BLOCK / Team::threads;
    unsigned team = threadIdx.x / Team::threads, thread = threadIdx.x % Team::threads;
    double sums[SUMS] = {0, 0};
    for (size_t row = (size_t)blockIdx.x * teams + team; row < n; row += (size_t)gridDim.x * teams)
        rows.template evaluate<Team, WIDTH, KEPT>(row, thread, sums);
    grid_sums<SUMS>(sums, room, finish);
}

template <typename T>
static void cross_entropy_in_place(const HalfLogits &of, float *loss, int64_t *correct) {
    enum { WIDTH = 8, KEPT = 8 }; // 32 registers of logits, of 128
    CudaDevice *cuda = cuda_current();
    const size_t n = of.labels.n, classes = of.labels.classes;
    CHECK(of.pitch <= INT32_MAX, "rows of %zu logits", of.pitch);
    const RowsInPlace<T> rows = {(T *)of.logits,
                                 of.labels.target,
                                 (unsigned)classes,
                                 (unsigned)of.pitch,
                                 (float)(of.divisor > 0 ? 1 / of.divisor : 0),
                                 of.gradient};
    const MeanAndHits finish = {{of.divisor, loss}, correct};
    const bool few = classes <= WARP_CLASSES;
    const bool wide = of.pitch % WIDTH == 0 && (uintptr_t)of.logits % (WIDTH * sizeof(T)) == 0;
    GridSum room = grid_sum_room(cuda, n, few ? CUDA_BLOCK / CUDA_WARP : 1, SUMS);
    cuda_launch(cuda,
                few    ? cross_entropy_in_place_kernel<Warp, 1, 0, T>
                : wide ? cross_entropy_in_place_kernel<Block, WIDTH, KEPT, T>
                       : cross_entropy_in_place_kernel<Block, 1, 0, T>,
                room.blocks, rows, n, room, finish);
}

void cuda_half_cross_entropy(const HalfLogits *of, float *loss, int64_t *correct) {
    BY_PRECISION(of->precision, cross_entropy_in_place, *of, loss, correct);
}

// ---- squared error --------------------------------------------------------------------------

static void cuda_squared_error(const float *x, const float *target, double divisor, float *loss,
                               size_t count) {
    cuda_sum(count, Mean{divisor, loss}, [=] __device__() {
        double own = 0;
        FOR_EACH(i, count) {
            double difference = (double)x[i] - (double)target[i];
            own += difference * difference;
        }
        return own;
    });
}

static void cuda_squared_error_gradient(const float *x, const float *target, Upstream upstream,
                                        float *dx, bool accumulate, size_t count) {
    cuda_run(count, [=] __device__() {
        float scale = (float)quotient(*upstream.gradient, upstream.divisor);
        FOR_EACH(i, count) put(&dx[i], 2 * (x[i] - target[i]) * scale, accumulate);
    });
}

// ---- yes or no ------------------------------------------------------------------------------

static __device__ float pos_weight(const Answers &answers, size_t column) {
    return answers.pos_weight ? answers.pos_weight[column] : 1;
}

static void cuda_binary_cross_entropy(const Answers *of, double divisor, float *loss) {
    const Answers answers = *of;
    size_t count = answers.n * answers.classes;
    if (count == 0) return cuda_elementwise.fill(loss, 0, 1);
    cuda_sum(count, Mean{divisor, loss}, [=] __device__() {
        double own = 0;
        Walk walk = walk_grid(answers.n, answers.classes);
        FOR_EACH(i, count) {
            float x = answers.logits[i], t = answers.target[i];
            float softplus = (x < 0 ? -x : 0) + log1pf(expf(-fabsf(x))); // log(1 + exp(-x))
            float weight = 1 + (pos_weight(answers, walk.column) - 1) * t;
            own += (double)((1 - t) * x) + (double)(weight * softplus);
            walk.next();
        }
        return own;
    });
}

static void cuda_binary_cross_entropy_gradient(const Answers *of, Upstream upstream, float *dlogits,
                                               bool accumulate) {
    const Answers answers = *of;
    size_t count = answers.n * answers.classes;
    cuda_run(count, [=] __device__() {
        float scale = (float)quotient(*upstream.gradient, upstream.divisor);
        Walk walk = walk_grid(answers.n, answers.classes);
        FOR_EACH(i, count) {
            float p = pos_weight(answers, walk.column), t = answers.target[i];
            float sigmoid = 1 / (1 + expf(-answers.logits[i]));
            put(&dlogits[i], ((1 + (p - 1) * t) * sigmoid - p * t) * scale, accumulate);
            walk.next();
        }
    });
}

static void cuda_one_hot(const int64_t *labels, float *y, size_t n, size_t classes) {
    cuda_run(n * classes, [=] __device__() {
        Walk walk = walk_grid(n, classes);
        FOR_EACH(i, n * classes) {
            int64_t label = labels[walk.row];
            y[i] = is_class(label, classes) ? (float)((size_t)label == walk.column) : NAN;
            walk.next();
        }
    });
}

// ---- right or wrong -------------------------------------------------------------------------

struct Correct {
    const float *logits;
    const int64_t *target;
    size_t classes;

    // Every comparison with a NaN is false.
    template <typename Team> __device__ double evaluate(size_t row, unsigned thread) const {
        const float *x = logits + row * classes;
        int64_t target_class = target[row];
        if (!is_class(target_class, classes)) return 0; // all threads of the team
        size_t label = (size_t)target_class;
        float largest = x[label];
        unsigned against = 0;
        for (size_t j = thread; j < classes; j += Team::threads)
            against += !(j < label ? x[j] < largest : x[j] <= largest);
        return Team::sum(against) == 0;
    }
};

struct Number { // a sum of ones, added as doubles: exact up to 2^53
    int64_t *y; // [1]
    __device__ void operator()(double sum) const { *y = (int64_t)sum; }
};

static void cuda_count_correct(Labels labels, const float *logits, int64_t *correct) {
    sum_rows(Correct{logits, labels.target, labels.classes}, labels.n, labels.classes,
             Number{correct});
}

extern "C" const LossKernels cuda_loss = {
    .cross_entropy = cuda_cross_entropy,
    .cross_entropy_gradient = cuda_cross_entropy_gradient,
    .squared_error = cuda_squared_error,
    .squared_error_gradient = cuda_squared_error_gradient,
    .binary_cross_entropy = cuda_binary_cross_entropy,
    .binary_cross_entropy_gradient = cuda_binary_cross_entropy_gradient,
    .one_hot = cuda_one_hot,
    .count_correct = cuda_count_correct,
};
