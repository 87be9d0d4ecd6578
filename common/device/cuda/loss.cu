/* loss.cu: losses of rows, their gradients, and how many predictions are right.
 *
 * A row of logits is one warp's work, or one block's where there are many classes; what its threads
 * tell each other does not go through memory. A row's loss is a double, and so is the sum of the
 * rows (grid_sum): over a whole batch, float's rounding would show. A loss is one launch,
 * and so is its gradient.
 */
#include <math.h>

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
};

struct Block {
    static const unsigned threads = CUDA_BLOCK;
    template <typename T> static __device__ T sum(T value) { return block_sum(value); }
    template <typename T> static __device__ T max(T value) { return block_max(value); }
};

enum { WARP_CLASSES = 1024 }; // more than that are a block's work

// Rows is a struct with a formula: evaluate<Team>(row, thread) returns the same to all the threads
// of the team. What becomes of the sum of all rows is Finish's.
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
    GridSum room = grid_sum_room(cuda, n, few ? CUDA_BLOCK / CUDA_WARP : 1);
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
