/* choice.cu: selects the kernels of attention in 16 bits: tensor cores (mma.cu) where their results
 * agree with the exact kernels' (../attention.cu), the exact kernels otherwise.
 *
 *   capability below 8.0, heads of no multiple of 8 elements     exact
 *   first use of a type and a size of heads                      both, on random numbers; compared
 *   a result differs by more than rounding                       exact, and a note on stderr
 *
 * The comparison runs on the card, because the emulator's twins cannot detect a lane layout that
 * kernel and twin misread alike. Its input is one text of LENGTH tokens and two heads; it
 * synchronizes with the device. Replicas of a model try before their first step and share one
 * choice (common/nn/attention_choice.h).
 */
#include <math.h>

#include "common/device/cuda/attention/head.cuh"
#include "common/device/cuda/reduce.cuh"

extern "C" {
#include "common/device/cuda/allocator.h"
#include "common/device/plan_cache.h"
}

enum { LENGTH = 150 }; // of a trial: a block of 128 tokens and a part of one

typedef struct AttentionKey { // fields of one size, so that there is no padding
    uint64_t precision, size;
} AttentionKey;

// Largest difference between the two outputs, divided by the largest that rounding can cause.
typedef struct AttentionChoice {
    float difference;
} AttentionChoice;

extern "C" PlanCache *cuda_attentions_create(void) {
    return plan_cache_create(sizeof(AttentionKey), free);
}

// ---- a trial ------------------------------------------------------------------------------------

// Random bits by index (a finalizer of splitmix64).
static __device__ uint64_t scrambled(uint64_t x) {
    x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// Numbers from -2 to 2.
template <typename T> static void fill_random(void *memory, size_t count, uint64_t seed) {
    T *x = (T *)memory;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            uint64_t bits = scrambled(seed << 40 | i);
            narrow_to(&x[i], (float)(bits >> 40) * 0x1p-22f - 2);
        }
    });
}

// worst[0] = the largest difference of a and b over the largest |b|; NaN counts as infinite.
template <typename T>
static __global__ void compare_kernel(const T *a, const T *b, size_t count, float *worst) {
    float difference = 0, largest = 0;
    for (size_t i = threadIdx.x; i < count; i += CUDA_BLOCK) {
        float x = widened(a[i]), y = widened(b[i]), d = fabsf(x - y);
        difference = fmaxf(difference, isfinite(d) ? d : INFINITY);
        largest = fmaxf(largest, fabsf(y));
    }
    difference = block_max(difference);
    largest = block_max(largest);
    if (threadIdx.x == 0) *worst = difference / largest;
}

// The tensors of a trial: inputs, and outputs of both implementations.
typedef struct Trial {
    Attention of;
    void *qkv, *dy, *y[2], *dqkv[2];
    float *logs[2], *means, *worst; // worst[3]: of y, logs, dqkv
    size_t bytes;
} Trial;

static Trial trial_split(const Attention &of, void *memory) {
    Trial t = {};
    t.of = of;
    size_t rows = of.batch * of.length, count = rows * of.heads * of.size;
    t.qkv = cuda_part(memory, &t.bytes, 3 * count * sizeof(uint16_t));
    t.dy = cuda_part(memory, &t.bytes, count * sizeof(uint16_t));
    for (int i = 0; i < 2; i++) {
        t.y[i] = cuda_part(memory, &t.bytes, count * sizeof(uint16_t));
        t.dqkv[i] = cuda_part(memory, &t.bytes, 3 * count * sizeof(uint16_t));
        t.logs[i] = (float *)cuda_part(memory, &t.bytes, rows * of.heads * sizeof(float));
    }
    t.means = (float *)cuda_part(memory, &t.bytes, rows * of.heads * sizeof(float));
    t.worst = (float *)cuda_part(memory, &t.bytes, 3 * sizeof(float));
    return t;
}

template <typename T> static void run_trial(const Trial &t, Precision precision) {
    const CudaDevice *cuda = cuda_current();
    size_t queries = queries_of(&t.of), count = queries * t.of.size;
    fill_random<T>(t.qkv, 3 * count, 1);
    fill_random<T>(t.dy, count, 2);
    for (int i = 0; i < 2; i++) {
        const AttentionForward forward = {precision, t.of, t.qkv, t.y[i], t.logs[i]};
        // Both gradients are of the exact forward pass, which comes first.
        const AttentionBackward backward = {precision, t.of,    t.qkv,     t.y[0], t.dy,
                                            t.logs[0], t.means, t.dqkv[i], false};
        (i ? attention_mma : attention_exact)(forward);
        (i ? attention_mma_gradient : attention_exact_gradient)(backward);
    }
    cuda_launch(cuda, compare_kernel<T>, 1, (const T *)t.y[1], (const T *)t.y[0], count, t.worst);
    cuda_launch(cuda, compare_kernel<float>, 1, t.logs[1], t.logs[0], queries, t.worst + 1);
    cuda_launch(cuda, compare_kernel<T>, 1, (const T *)t.dqkv[1], (const T *)t.dqkv[0], 3 * count,
                t.worst + 2);
}

// ---- the choice ---------------------------------------------------------------------------------

// Infinite if the device has no memory for a trial.
static float try_mma(const CudaDevice *cuda, Precision precision, const Attention &of) {
    // Eight units in the last place of the largest: another order of sums changes one or two.
    const float bound = precision == PRECISION_F16 ? 8 * 0x1p-11f : 8 * 0x1p-8f;
    float worst[3], largest = 0;
    size_t bytes = trial_split(of, NULL).bytes;
    void *memory = cuda_allocator_take(cuda->allocator, bytes);
    if (!memory) return INFINITY;
    const Trial trial = trial_split(of, memory);
    BY_PRECISION(precision, run_trial, trial, precision);
    device_copy(NULL, worst, cuda->device, trial.worst, sizeof worst);
    cuda_allocator_give_back(cuda->allocator, memory);
    for (float one : worst) largest = fmaxf(largest, isfinite(one) ? one : 1e30f);
    return largest / bound;
}

static AttentionChoice *find(const CudaDevice *cuda, Precision precision, size_t size) {
    const AttentionKey key = {(uint64_t)precision, size};
    return (AttentionChoice *)plan_cache_find(cuda->attentions, &key);
}

void cuda_set_attention_difference(Precision precision, size_t size, float difference) {
    const CudaDevice *cuda = cuda_current();
    const AttentionKey key = {(uint64_t)precision, size};
    AttentionChoice *choice = find(cuda, precision, size);
    if (!choice) {
        choice = (AttentionChoice *)memory_zalloc(sizeof *choice);
        plan_cache_add(cuda->attentions, &key, choice);
    }
    choice->difference = difference;
}

float cuda_attention_difference(Precision precision, size_t size) {
    const CudaDevice *cuda = cuda_current();
    if (cuda->capability < 80 || size == 0 || size % 8 != 0 || size > LARGEST_HEAD) return INFINITY;
    const AttentionChoice *choice = find(cuda, precision, size);
    if (choice) return choice->difference;
    CHECK(!cuda->capturing, "%s meets a new attention while it records a graph",
          cuda->device->name);
    const float difference = try_mma(cuda, precision, {1, LENGTH, 2, size});
    cuda_set_attention_difference(precision, size, difference);
    return difference;
}

bool cuda_attention_takes_mma(Precision precision, const Attention *of) {
    const CudaDevice *cuda = cuda_current();
    const bool first = !find(cuda, precision, of->size);
    const float difference = cuda_attention_difference(precision, of->size);
    if (first && difference > 1 && isfinite(difference))
        fprintf(
            stderr,
            "note: %s: attention on tensor cores is off for heads of %zu: it is %.1e times what "
            "rounding explains from the exact kernels, which take over\n",
            cuda->device->name, of->size, (double)difference);
    return difference <= 1;
}

void cuda_half_attention(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                         void *saved) {
    if (is_empty(of)) return;
    const AttentionForward call = {how.precision, *of, qkv, y, (float *)saved};
    (cuda_attention_takes_mma(how.precision, of) ? attention_mma : attention_exact)(call);
}

void cuda_half_attention_gradient(Compute how, const Attention *of, const uint16_t *qkv,
                                  const uint16_t *y, const void *saved, const uint16_t *dy,
                                  uint16_t *dqkv, bool accumulate) {
    if (is_empty(of)) return;
    const AttentionBackward call = {
        how.precision,          *of,  qkv,       y, dy, (const float *)saved,
        (float *)how.workspace, dqkv, accumulate};
    (cuda_attention_takes_mma(how.precision, of) ? attention_mma_gradient
                                                 : attention_exact_gradient)(call);
}
