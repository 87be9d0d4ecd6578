/* comm_hooks.c: the small hooks, and the wrappers around any hook. */
#include "ddp/features/comm_hooks.h"

#include <string.h>

#include "common/base/memory.h"
#include "ddp/features/features.h"
#include "ddp/reducer.h"

// Scratch for one bucket in 16 bits, on a device that the host cannot address; grows to the largest
// bucket. A device runs its operations in order, so all buckets share it.
typedef struct HalvesBuffer {
    Device *device;
    uint16_t *halves;
    size_t count;
} HalvesBuffer;

typedef struct Compression { // the state of comm_hook_compress
    ProcessGroup *group;
    PgType type; // on the wire: PG_F16 or PG_BF16
    HalvesBuffer buffer;
} Compression;

static void close_halves(HalvesBuffer *buffer) {
    if (buffer->halves)
        device_free(buffer->device, buffer->halves, buffer->count * sizeof *buffer->halves);
    *buffer = (HalvesBuffer){0};
}

static void close_state(void *state) {
    close_halves(&((Compression *)state)->buffer);
    free(state);
}

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

enum { BLOCK = 512 };

static Precision precision_of(PgType type) {
    return type == PG_F16 ? PRECISION_F16 : PRECISION_BF16;
}

// Rounds n floats, divides the rounded values as PyTorch does, and rounds the quotients.
static void narrow(const GradBucket *bucket, PgType type, float divisor, const float *x, size_t n,
                   uint16_t *halves) {
    const ElementwiseKernels *kernels = device_kernels(bucket->device)->elementwise;
    kernels->narrow(precision_of(type), halves, x, n);
    if (divisor == 1) return;
    float quotients[BLOCK];
    kernels->widen(precision_of(type), quotients, halves, n);
    for (size_t i = 0; i < n; i++) quotients[i] /= divisor;
    kernels->narrow(precision_of(type), halves, quotients, n);
}

// Narrows the bucket in place, into the first half of its memory, which all ranks can address.
// Block by block from the front, so that no float is overwritten before it is read.
static void pack(const GradBucket *bucket, PgType type, float divisor) {
    uint16_t halves[BLOCK];
    for (size_t first = 0, n; first < bucket->count; first += n) {
        n = bucket->count - first < BLOCK ? bucket->count - first : BLOCK;
        narrow(bucket, type, divisor, bucket->buffer + first, n, halves);
        // cppcheck-suppress uninitvar; n of them were written, n > 0
        memcpy((char *)bucket->buffer + first * sizeof *halves, halves, n * sizeof *halves);
    }
}

// Widens the bucket in place, block by block from the end for the same reason.
static void unpack(const GradBucket *bucket, PgType type) {
    const ElementwiseKernels *kernels = device_kernels(bucket->device)->elementwise;
    uint16_t halves[BLOCK];
    for (size_t end = bucket->count, n; end > 0; end -= n) {
        n = end % BLOCK ? end % BLOCK : BLOCK;
        memcpy(halves, (char *)bucket->buffer + (end - n) * sizeof *halves, n * sizeof *halves);
        kernels->widen(precision_of(type), bucket->buffer + end - n, halves, n);
    }
}

// ---- 16 bits on a device that the host cannot address: its kernels round, in scratch memory

static uint16_t *grow_halves(HalvesBuffer *buffer, const GradBucket *bucket) {
    if (buffer->count >= bucket->count) return buffer->halves;
    close_halves(buffer);
    buffer->device = bucket->device;
    buffer->count = bucket->count;
    buffer->halves = device_alloc(buffer->device, buffer->count * sizeof *buffer->halves);
    return buffer->halves;
}

// Rounds the bucket's floats to values of 16 bits, in place.
static void round_on_device(HalvesBuffer *buffer, PgType type, const GradBucket *bucket) {
    const Kernels *kernels = device_kernels(bucket->device);
    uint16_t *halves = grow_halves(buffer, bucket);
    kernels->elementwise->narrow(precision_of(type), halves, bucket->buffer, bucket->count);
    kernels->elementwise->widen(precision_of(type), bucket->buffer, halves, bucket->count);
}

static void pack_on_device(Compression *hook, const GradBucket *bucket, float divisor) {
    uint16_t *halves = grow_halves(&hook->buffer, bucket);
    const Kernels *kernels = device_kernels(bucket->device);
    if (divisor != 1) {
        round_on_device(&hook->buffer, hook->type, bucket);
        kernels->elementwise->scale(bucket->buffer, 1 / divisor, bucket->count);
    }
    kernels->elementwise->narrow(precision_of(hook->type), halves, bucket->buffer, bucket->count);
    device_copy(bucket->device, bucket->buffer, bucket->device, halves,
                bucket->count * sizeof *halves);
}

static void unpack_on_device(Compression *hook, const GradBucket *bucket) {
    uint16_t *halves = grow_halves(&hook->buffer, bucket);
    device_copy(bucket->device, halves, bucket->device, bucket->buffer,
                bucket->count * sizeof *halves);
    device_kernels(bucket->device)
        ->elementwise->widen(precision_of(hook->type), bucket->buffer, halves, bucket->count);
}

// ---- fp16, bf16

static bool on_host(const GradBucket *bucket) {
    return device_is_addressable(bucket->device);
}

static int start_compress(void *state, GradBucket *bucket, Error *err) {
    Compression *hook = state;
    float divisor = bucket->op == PG_AVG ? (float)pg_size(hook->group) : 1;
    if (on_host(bucket))
        pack(bucket, hook->type, divisor);
    else
        pack_on_device(hook, bucket, divisor);
    bucket->work = pg_start(hook->group, grad_bucket_all_reduce(bucket, hook->type, PG_SUM), err);
    return bucket->work ? 0 : -1;
}

static int finish_compress(void *state, GradBucket *bucket, Error *err) {
    Compression *hook = state;
    int status = work_wait(bucket->work, NULL, &bucket->done_ns, err);
    if (on_host(bucket))
        unpack(bucket, hook->type);
    else
        unpack_on_device(hook, bucket);
    return status;
}

CommHook comm_hook_compress(ProcessGroup *group, PgType type) {
    CHECK(type == PG_F16 || type == PG_BF16, "compressing to type %d", (int)type);
    Compression *compression = memory_zalloc(sizeof *compression);
    *compression = (Compression){.group = group, .type = type};
    return (CommHook){.name = type == PG_F16 ? "fp16_compress" : "bf16_compress",
                      .state = compression,
                      .start = start_compress,
                      .finish = finish_compress,
                      .close = close_state,
                      .graph_safe = true}; // no allocation after the largest bucket
}

// ---- around another hook --------------------------------------------------------------------

typedef struct Around {
    CommHook inner;
    PgType type;         // what comm_hook_round rounds to
    HalvesBuffer buffer; // comm_hook_round on a device
    CommThen *then;      // what comm_hook_then calls, with this context
    void *context;
} Around;

static void close_around(void *state) {
    Around *around = state;
    if (around->inner.close) around->inner.close(around->inner.state);
    close_halves(&around->buffer);
    free(around);
}

static int save_inner(void *state, SafeTensors *content, Error *err) {
    const Around *around = state;
    return around->inner.save(around->inner.state, content, err);
}

static int load_inner(void *state, const char *path, const SafeTensors *content, Log *log,
                      Error *err) {
    const Around *around = state;
    return around->inner.load(around->inner.state, path, content, log, err);
}

static CommHook around_hook(const char *name, Around value) {
    Around *state = memory_zalloc(sizeof *state);
    *state = value;
    return (CommHook){.name = name,
                      .state = state,
                      .close = close_around,
                      .save = value.inner.save ? save_inner : NULL,
                      .load = value.inner.load ? load_inner : NULL};
}

static int start_inner(void *state, GradBucket *bucket, Error *err) {
    Around *around = state;
    return around->inner.start(around->inner.state, bucket, err);
}

static void round_all(Around *around, GradBucket *bucket) {
    PgType type = around->type;
    if (!on_host(bucket)) {
        round_on_device(&around->buffer, type, bucket);
        return;
    }
    pack(bucket, type, 1);
    unpack(bucket, type);
}

static int start_round(void *state, GradBucket *bucket, Error *err) {
    round_all(state, bucket);
    return start_inner(state, bucket, err);
}

static int finish_round(void *state, GradBucket *bucket, Error *err) {
    Around *around = state;
    int status = around->inner.finish(around->inner.state, bucket, err);
    round_all(around, bucket);
    return status;
}

CommHook comm_hook_round(CommHook inner, PgType type) {
    const char *name = type == PG_F16 ? "fp16_compress_wrapper" : "bf16_compress_wrapper";
    CommHook hook = around_hook(name, (Around){.inner = inner, .type = type});
    hook.start = start_round;
    hook.finish = finish_round;
    hook.graph_safe = inner.graph_safe;
    return hook;
}

static int finish_then(void *state, GradBucket *bucket, Error *err) {
    Around *around = state;
    int status = around->inner.finish(around->inner.state, bucket, err);
    if (status == 0) around->then(around->context, bucket);
    return status;
}

CommHook comm_hook_then(CommHook inner, CommThen *then, void *context) {
    CommHook hook = around_hook("then", (Around){.inner = inner, .then = then, .context = context});
    hook.start = start_inner;
    hook.finish = finish_then;
    return hook;
}

// ---- the command line -----------------------------------------------------------------------

static CommHook make_hook(const char *name, const void *settings, Module *wrapper, Error *err) {
    (void)settings, (void)err;
    ProcessGroup *group = ddp_group(wrapper);
    if (strcmp(name, "fp16") == 0) return comm_hook_compress(group, PG_F16);
    if (strcmp(name, "bf16") == 0) return comm_hook_compress(group, PG_BF16);
    return strcmp(name, "noop") == 0 ? comm_hook_noop() : comm_hook_all_reduce(group);
}

const DdpFeature comm_hooks_feature = {
    .graph_safe = true, .hook_names = "allreduce|fp16|bf16|noop", .make_hook = make_hook};
