/* kernel_clock.c: wrappers of a device's kernels that time them. */
#include "bench/account/kernel_clock.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"

enum { ENTRIES_MAX = 64 };

struct KernelClock {
    Device *device;
    const Kernels *own; // the device's
    size_t repeats;
    Kernels kernels;
    ElementwiseKernels elementwise;
    LossKernels loss;
    TransformerKernels transformer;
    HalfKernels halves;
    OptimizerKernels optimizer;
    EntryTime entries[ENTRIES_MAX];
    size_t count;
};

// Kernel functions have no parameter for their device (kernels.h), so the clock is found here.
static KernelClock *timing;

static uint64_t begin(void) {
    device_synchronize(timing->device);
    (void)device_kernels(timing->device); // the device is the thread's current one again
    return clock_ns();
}

static void end(const char *entry, uint64_t start_ns) {
    KernelClock *c = timing;
    device_synchronize(c->device);
    const double seconds = (double)(clock_ns() - start_ns) / 1e9 / (double)c->repeats;
    (void)device_kernels(c->device);
    size_t i = 0;
    while (i < c->count && strcmp(c->entries[i].entry, entry) != 0) i++;
    CHECK(i < ENTRIES_MAX, "more than %d entries", ENTRIES_MAX);
    if (i == c->count) c->entries[c->count++] = (EntryTime){.entry = entry};
    c->entries[i].calls++;
    c->entries[i].seconds += seconds;
}

// The wrapper `FAMILY_ENTRY` of an entry: its name in the list, its parameters and their names.
// (PARAMETERS and ARGUMENTS have parentheses of their own.) NOLINTBEGIN(bugprone-macro-parentheses)
#define TIMED(FAMILY, ENTRY, NAME, PARAMETERS, ARGUMENTS)                                  \
    static void FAMILY##_##ENTRY PARAMETERS {                                              \
        const uint64_t start_ns = begin();                                                 \
        for (size_t i = 0; i < timing->repeats; i++) timing->own->FAMILY->ENTRY ARGUMENTS; \
        end(NAME, start_ns);                                                               \
    }
// NOLINTEND(bugprone-macro-parentheses)

TIMED(elementwise, fill, "fill", (float *y, float value, size_t count), (y, value, count))

TIMED(transformer, embedding, "embedding",
      (const Embedding *of, const float *wte, const float *wpe, float *y), (of, wte, wpe, y))
TIMED(transformer, embedding_gradient, "embedding_gradient",
      (const Embedding *of, const float *dy, float *dwte, bool add, void *workspace),
      (of, dy, dwte, add, workspace))
TIMED(transformer, position_gradient, "position_gradient",
      (const Embedding *of, const float *dy, float *dwpe, bool add), (of, dy, dwpe, add))

TIMED(halves, narrow_rows, "narrow_rows",
      (Precision precision, HalfRows of, const float *x, uint16_t *y, bool add),
      (precision, of, x, y, add))
TIMED(halves, widen_rows, "widen_rows",
      (Precision precision, HalfRows of, const uint16_t *x, float *y, bool add),
      (precision, of, x, y, add))
TIMED(halves, layer_norm, "layer_norm",
      (Precision precision, const LayerNorm *norm, const uint16_t *branch, float *sum, uint16_t *y),
      (precision, norm, branch, sum, y))
TIMED(halves, layer_norm_gradient, "layer_norm_gradient",
      (Precision precision, const LayerNorm *norm, const uint16_t *dy, const NormGradient *to,
       uint16_t *dbranch),
      (precision, norm, dy, to, dbranch))
TIMED(halves, attention, "attention",
      (Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y, void *saved),
      (how, of, qkv, y, saved))
TIMED(halves, attention_gradient, "attention_gradient",
      (Compute how, const Attention *of, const uint16_t *qkv, const uint16_t *y, const void *saved,
       const uint16_t *dy, uint16_t *dqkv, bool add),
      (how, of, qkv, y, saved, dy, dqkv, add))
TIMED(halves, linear, "linear",
      (Compute how, LinearShape shape, const uint16_t *x, const uint16_t *narrow, const float *bias,
       uint16_t *y),
      (how, shape, x, narrow, bias, y))
TIMED(halves, linear_weight_gradient, "linear_weight_gradient",
      (Compute how, LinearShape shape, const uint16_t *dy, const uint16_t *x,
       const LinearGradient *to),
      (how, shape, dy, x, to))
TIMED(halves, linear_input_gradient, "linear_input_gradient",
      (Compute how, LinearShape shape, const uint16_t *dy, const uint16_t *weight,
       const ReluMask *of, uint16_t *dx, bool add),
      (how, shape, dy, weight, of, dx, add))
TIMED(halves, linear_gelu, "linear_gelu",
      (Compute how, LinearShape shape, const uint16_t *x, const uint16_t *narrow, const float *bias,
       HalfGelu to),
      (how, shape, x, narrow, bias, to))
TIMED(halves, linear_gelu_gradient, "linear_gelu_gradient",
      (Compute how, LinearShape shape, const uint16_t *dy, const uint16_t *weight,
       const uint16_t *before, uint16_t *dbefore),
      (how, shape, dy, weight, before, dbefore))

TIMED(halves, cross_entropy, "half_cross_entropy",
      (const HalfLogits *of, float *loss, int64_t *correct), (of, loss, correct))
TIMED(loss, cross_entropy, "cross_entropy",
      (Labels labels, const float *logits, double divisor, float *probabilities, float *loss),
      (labels, logits, divisor, probabilities, loss))
TIMED(loss, cross_entropy_gradient, "cross_entropy_gradient",
      (Labels labels, const float *probabilities, Upstream upstream, float *dlogits, bool add),
      (labels, probabilities, upstream, dlogits, add))
TIMED(loss, count_correct, "count_correct", (Labels labels, const float *logits, int64_t *correct),
      (labels, logits, correct))
TIMED(optimizer, adam, "adam",
      (const AdamConfig *config, const AdamTensor *tensors, size_t count,
       const OptimizerPeer *peer),
      (config, tensors, count, peer))

// ---- the tables ---------------------------------------------------------------------------------

#define FAMILY(name)         c->name = *c->own->name, c->kernels.name = &c->name
#define ENTRY(family, entry) c->family.entry = family##_##entry

static void fill_tables(KernelClock *c) {
    FAMILY(elementwise), FAMILY(loss), FAMILY(transformer), FAMILY(halves), FAMILY(optimizer);
    ENTRY(elementwise, fill);
    ENTRY(transformer, embedding), ENTRY(transformer, embedding_gradient);
    ENTRY(transformer, position_gradient);
    ENTRY(halves, narrow_rows), ENTRY(halves, widen_rows);
    ENTRY(halves, layer_norm), ENTRY(halves, layer_norm_gradient);
    ENTRY(halves, attention), ENTRY(halves, attention_gradient);
    ENTRY(halves, linear);
    ENTRY(halves, linear_weight_gradient), ENTRY(halves, linear_input_gradient);
    ENTRY(halves, linear_gelu), ENTRY(halves, linear_gelu_gradient);
    ENTRY(halves, cross_entropy);
    ENTRY(loss, cross_entropy), ENTRY(loss, cross_entropy_gradient), ENTRY(loss, count_correct);
    ENTRY(optimizer, adam);
}

KernelClock *kernel_clock_open(Device *device, size_t repeats) {
    CHECK(device->kernels->halves && device->kernels->transformer && repeats > 0 && !timing,
          "%s has no kernels in 16 bits to time", device->name);
    KernelClock *c = timing = memory_zalloc(sizeof *c);
    c->device = device;
    c->own = device->kernels;
    c->repeats = repeats;
    c->kernels = *device->kernels;
    fill_tables(c);
    device->kernels = &c->kernels;
    return c;
}

void kernel_clock_close(KernelClock *c) {
    if (!c) return;
    c->device->kernels = c->own;
    timing = NULL;
    free(c);
}

const EntryTime *kernel_clock_times(const KernelClock *c, size_t *count) {
    *count = c->count;
    return c->entries;
}
