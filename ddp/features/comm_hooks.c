/* comm_hooks.c: the small hooks, and the wrappers around any hook. */
#include "ddp/features/comm_hooks.h"

#include <string.h>

#include "common/base/memory.h"
#include "ddp/features/features.h"
#include "ddp/features/hook_around.h"
#include "ddp/reducer.h"

// ---- allreduce, noop ------------------------------------------------------------------------

CommHook comm_hook_all_reduce(ProcessGroup *group) {
    CommHook hook = reducer_default_hook(group);
    hook.name = "allreduce";
    hook.graph_safe = true;
    return hook;
}

static int do_nothing(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket, (void)err;
    return 0;
}

CommHook comm_hook_noop(void) {
    return (CommHook){
        .name = "noop", .start = do_nothing, .finish = do_nothing, .graph_safe = true};
}

// ---- 16 bits --------------------------------------------------------------------------------

enum { HOST_BLOCK = 512 };

// A bucket is converted in blocks of elements through scratch memory. On the host a block stays in
// the first-level cache; on other devices, where each block is a kernel launch, it is the whole
// bucket. A device runs its operations in order, so all buckets share the scratch memory.
typedef struct Compression {
    ProcessGroup *group;
    PgType type; // on the wire: PG_F16 or PG_BF16
    Precision precision;
    Device *device;
    uint16_t *halves; // [capacity], device memory: scratch for one block
    size_t capacity;
} Compression;

static Compression *open_compression(ProcessGroup *group, PgType type) {
    CHECK(type == PG_F16 || type == PG_BF16, "compressing to type %d", (int)type);
    Compression *compression = memory_zalloc(sizeof *compression);
    *compression = (Compression){
        .group = group, .type = type, .precision = type == PG_F16 ? PRECISION_F16 : PRECISION_BF16};
    return compression;
}

static void free_scratch(Compression *compression) {
    if (compression->halves)
        device_free(compression->device, compression->halves,
                    compression->capacity * sizeof *compression->halves);
}

static void close_compression(void *state) {
    free_scratch(state);
    free(state);
}

// Returns the size of the bucket's blocks, for which there is scratch memory.
static size_t block_of(Compression *compression, const GradBucket *bucket) {
    size_t block = device_is_addressable(bucket->device) ? HOST_BLOCK : bucket->count;
    if (compression->capacity >= block) return block;
    free_scratch(compression);
    compression->device = bucket->device;
    compression->capacity = block;
    compression->halves = device_alloc(bucket->device, block * sizeof *compression->halves);
    return block;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

// Rounds n floats to values of 16 bits, in place.
static void round_floats(const Compression *compression, float *x, size_t n) {
    const ElementwiseKernels *kernels = device_kernels(compression->device)->elementwise;
    kernels->narrow(compression->precision, compression->halves, x, n);
    kernels->widen(compression->precision, x, compression->halves, n);
}

static void divide(Device *device, float *x, size_t n, float divisor) {
    if (!device_is_addressable(device)) {
        device_kernels(device)->elementwise->scale(x, 1 / divisor, n);
        return;
    }
    for (size_t i = 0; i < n; i++) x[i] /= divisor;
}

// Narrows the bucket in place, into the first half of its memory, which all ranks can address.
// Block by block from the front, so that no float is overwritten before it is read. As in PyTorch,
// a rounded value is divided, and the quotient rounded.
static void narrow_bucket(Compression *compression, const GradBucket *bucket, float divisor) {
    size_t block = block_of(compression, bucket);
    uint16_t *packed = (void *)bucket->buffer, *halves = compression->halves;
    for (size_t first = 0, n; first < bucket->count; first += n) {
        float *x = bucket->buffer + first;
        n = smaller(bucket->count - first, block);
        if (divisor != 1) {
            round_floats(compression, x, n);
            divide(bucket->device, x, n, divisor);
        }
        device_kernels(bucket->device)->elementwise->narrow(compression->precision, halves, x, n);
        device_copy(bucket->device, packed + first, bucket->device, halves, n * sizeof *halves);
    }
}

// Widens the bucket in place, block by block from the end for the same reason.
static void widen_bucket(Compression *compression, const GradBucket *bucket) {
    size_t block = block_of(compression, bucket);
    uint16_t *packed = (void *)bucket->buffer, *halves = compression->halves;
    for (size_t end = bucket->count, n; end > 0; end -= n) {
        n = end % block ? end % block : block;
        float *x = bucket->buffer + end - n;
        device_copy(bucket->device, halves, bucket->device, packed + end - n, n * sizeof *halves);
        device_kernels(bucket->device)->elementwise->widen(compression->precision, x, halves, n);
    }
}

static int start_compress(void *state, GradBucket *bucket, Error *err) {
    Compression *hook = state;
    float divisor = bucket->op == PG_AVG ? (float)pg_size(hook->group) : 1;
    narrow_bucket(hook, bucket, divisor);
    bucket->work = pg_start(hook->group, grad_bucket_all_reduce(bucket, hook->type, PG_SUM), err);
    return bucket->work ? 0 : -1;
}

static int finish_compress(void *state, GradBucket *bucket, Error *err) {
    if (pg_work_wait(bucket->work, NULL, &bucket->done_ns, err) != 0) return -1;
    widen_bucket(state, bucket);
    return 0;
}

CommHook comm_hook_compress(ProcessGroup *group, PgType type) {
    return (CommHook){.name = type == PG_F16 ? "fp16_compress" : "bf16_compress",
                      .state = open_compression(group, type),
                      .start = start_compress,
                      .finish = finish_compress,
                      .close = close_compression,
                      .graph_safe = true}; // no allocation after the largest bucket
}

// ---- around another hook --------------------------------------------------------------------

static void round_bucket(void *state, GradBucket *bucket) {
    size_t block = block_of(state, bucket);
    for (size_t first = 0; first < bucket->count; first += block)
        round_floats(state, bucket->buffer + first, smaller(bucket->count - first, block));
}

CommHook comm_hook_round(CommHook inner, PgType type) {
    const char *name = type == PG_F16 ? "fp16_compress_wrapper" : "bf16_compress_wrapper";
    CommHook hook = hook_around(name, (HookAround){.inner = inner,
                                                   .context = open_compression(NULL, type),
                                                   .before = round_bucket,
                                                   .after = round_bucket,
                                                   .close = close_compression});
    hook.graph_safe = inner.graph_safe;
    return hook;
}

CommHook comm_hook_then(CommHook inner, CommThen *then, void *context) {
    return hook_around("then", (HookAround){.inner = inner, .context = context, .after = then});
}

// ---- the command line -----------------------------------------------------------------------

static CommHook make_hook(const char *name, const void *settings, Module *wrapper, size_t steps,
                          Error *err) {
    (void)settings, (void)steps, (void)err;
    ProcessGroup *group = ddp_group(wrapper);
    if (strcmp(name, "fp16") == 0) return comm_hook_compress(group, PG_F16);
    if (strcmp(name, "bf16") == 0) return comm_hook_compress(group, PG_BF16);
    return strcmp(name, "noop") == 0 ? comm_hook_noop() : comm_hook_all_reduce(group);
}

const DdpFeature comm_hooks_feature = {
    .graph_safe = true, .hook_names = "allreduce|fp16|bf16|noop", .make_hook = make_hook};
