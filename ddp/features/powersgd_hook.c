/* powersgd_hook.c: per iteration and bucket, in this order:
 *
 *   start    M += error;  P = M Q;  all-reduce the vectors, and P (a sum: it is orthogonalised)
 *   finish   orthogonalise P;  Q = M' P;  all-reduce Q;  the gradient is P Q';  error = M - P Q'
 *
 * A bucket's P are contiguous, and so are its Q and the rest (gradients that are not compressed):
 * each is one all-reduce. The three slabs hold all parameters; buckets take their slices in index
 * order. Invariant: from start to
 * finish the bucket's gradients hold M, and so does error.
 *
 * All tensors are on the device, except Q between steps. P and Q are orthogonalised on the host:
 * they are small.
 */
#include "ddp/features/powersgd_hook.h"

#include <math.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/rng.h"
#include "ddp/features/features.h"
#include "ddp/features/hook_state.h"
#include "ddp/reducer.h"

typedef struct Matrix { // one parameter's gradient
    const Tensor *tensor;
    const char *name;
    size_t n, m, r; // r == 0: not compressed
    float *error;   // [n, m], device memory; NULL without error feedback
    float *last_q;  // [m, r] of the last iteration, host memory; NULL without warm start
    float *p, *q;   // [n, r], [m, r] of this iteration, in the slabs; not compressed: p is [n, m]
} Matrix;

typedef struct BucketSlices { // of the three slabs
    Slice p, q, rest;
    PgWork *p_work, *rest_work;
    bool plain; // before start_iteration: all-reduced uncompressed
} BucketSlices;

struct PowerSgd {
    HookState saved; // first, because hook_state_gather and hook_state_restore receive the state
    PowerSgdConfig config;
    ProcessGroup *group;
    Matrix *matrices; // [count]
    size_t count;
    Device *device;
    Slice p, q, rest;     // slabs, device memory
    float *host;          // [the larger of p.count and q.count], scratch for one P or Q
    BucketSlices *slices; // [count] by bucket: there are never more buckets than parameters
    int64_t iteration;
    int64_t compressed; // compressed iterations; 0: no previous q
};

PowerSgdConfig power_sgd_config_default(void) {
    return (PowerSgdConfig){.rank = 1,
                            .start_iteration = 1000,
                            .min_compression_rate = 2,
                            .error_feedback = true,
                            .warm_start = true};
}

// ---- linear algebra -------------------------------------------------------------------------

static double column_square(const float *a, size_t rows, size_t columns, size_t c) {
    double square = 0;
    for (size_t i = 0; i < rows; i++) square += (double)a[i * columns + c] * a[i * columns + c];
    return square;
}

// Gram-Schmidt on the columns of a [rows, columns], in place. A column that is linearly dependent
// on earlier ones becomes 0: its remainder is rounding error, and as a unit vector it would not be
// orthogonal to them.
static void orthogonalize(float *a, size_t rows, size_t columns) {
    double largest = 0;
    for (size_t c = 0; c < columns; c++)
        largest = fmax(largest, column_square(a, rows, columns, c));
    for (size_t c = 0; c < columns; c++) {
        double square = column_square(a, rows, columns, c);
        float factor = square <= 1e-10 * largest ? 0 : (float)(1 / sqrt(square)); // keeps NaN
        for (size_t i = 0; i < rows; i++) a[i * columns + c] *= factor;
        for (size_t d = c + 1; d < columns; d++) {
            double dot = 0;
            for (size_t i = 0; i < rows; i++)
                dot += (double)a[i * columns + c] * a[i * columns + d];
            for (size_t i = 0; i < rows; i++) a[i * columns + d] -= (float)dot * a[i * columns + c];
        }
    }
}

static void draw_q(const PowerSgd *state, const Matrix *matrix, float *q, size_t count) {
    uint64_t index = (uint64_t)(matrix - state->matrices);
    uint64_t first = ((uint64_t)state->compressed * state->count + index) << 32;
    for (size_t i = 0; i < count; i++)
        q[i] = rng_normal(state->config.seed, RNG_STREAM_POWER_SGD, first + i);
}

// ---- one bucket -----------------------------------------------------------------------------

static Matrix *matrix_of(PowerSgd *state, const Tensor *tensor) {
    size_t i = 0;
    while (i < state->count && state->matrices[i].tensor != tensor) i++;
    CHECK(i < state->count, "PowerSGD was made for another model");
    return &state->matrices[i];
}

static void add_error(const Matrix *matrix) {
    const Tensor *tensor = matrix->tensor;
    if (!matrix->error) return;
    size_t count = tensor_count(tensor);
    device_kernels(tensor->device)->elementwise->accumulate(tensor->grad, matrix->error, count);
    device_copy(tensor->device, matrix->error, tensor->device, tensor->grad, count * sizeof(float));
}

// c = a b in float32; the shape says which operand is transposed.
static void multiply(const Matrix *matrix, MatmulShape shape, const float *a, const float *b,
                     float *c) {
    device_kernels(matrix->tensor->device)
        ->matrix->matmul((Compute){PRECISION_F32, NULL}, shape, a, b, c, false);
}

static void project(const PowerSgd *state, const Matrix *matrix) {
    size_t n = matrix->n, m = matrix->m, r = matrix->r;
    if (matrix->last_q && state->compressed > 0)
        memcpy(state->host, matrix->last_q, m * r * sizeof *state->host);
    else
        draw_q(state, matrix, state->host, m * r);
    orthogonalize(state->host, m, r);
    device_copy(state->device, matrix->q, NULL, state->host, m * r * sizeof *state->host);
    multiply(matrix, (MatmulShape){false, false, n, r, m}, matrix->tensor->grad, matrix->q,
             matrix->p);
}

// Takes `count` more floats of the slab into the slice, and returns them.
static float *take(Slice *slice, size_t count) {
    float *taken = slice->data + slice->count;
    slice->count += count;
    return taken;
}

// Fills the bucket's slices of the slabs, behind the previous bucket's.
static BucketSlices *take_slices(PowerSgd *state, GradBucket *bucket) {
    BucketSlices *slices = &state->slices[bucket->index];
    *slices = (BucketSlices){
        .p.data = state->p.data, .q.data = state->q.data, .rest.data = state->rest.data};
    if (bucket->index > 0) {
        const BucketSlices *before = slices - 1;
        slices->p.data = before->p.data + before->p.count;
        slices->q.data = before->q.data + before->q.count;
        slices->rest.data = before->rest.data + before->rest.count;
    }
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Matrix *matrix = matrix_of(state, bucket->parameters[i]);
        const Tensor *tensor = matrix->tensor;
        if (matrix->r == 0) {
            matrix->p = take(&slices->rest, tensor_count(tensor));
            device_copy(state->device, matrix->p, bucket->device, tensor->grad,
                        tensor_bytes(tensor));
            continue;
        }
        matrix->p = take(&slices->p, matrix->n * matrix->r);
        matrix->q = take(&slices->q, matrix->m * matrix->r);
        add_error(matrix);
        project(state, matrix);
    }
    return slices;
}

static PgWork *start_sum(const PowerSgd *state, const GradBucket *bucket, Slice slice, ReduceOp op,
                         Error *err) {
    Collective sum = pg_all_reduce(slice.data, slice.count, PG_F32, op);
    return pg_start(state->group, pg_of_bucket(sum, bucket->index), err);
}

static int start(void *context, GradBucket *bucket, Error *err) {
    PowerSgd *state = context;
    if ((size_t)state->iteration < state->config.start_iteration) {
        state->slices[bucket->index] = (BucketSlices){.plain = true};
        bucket->work =
            start_sum(state, bucket, (Slice){bucket->buffer, bucket->count}, bucket->op, err);
        return bucket->work ? 0 : -1;
    }
    BucketSlices *slices = take_slices(state, bucket);
    slices->rest_work = start_sum(state, bucket, slices->rest, bucket->op, err);
    if (!slices->rest_work) return -1;
    slices->p_work = start_sum(state, bucket, slices->p, PG_SUM, err);
    if (!slices->p_work) pg_work_wait(slices->rest_work, NULL, NULL, err);
    return slices->p_work ? 0 : -1;
}

// Computes Q = M' P for each matrix of the bucket, with the all-reduced P.
static void project_back(PowerSgd *state, const GradBucket *bucket) {
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        const Matrix *matrix = matrix_of(state, bucket->parameters[i]);
        size_t n = matrix->n, m = matrix->m, r = matrix->r, bytes = n * r * sizeof *matrix->p;
        if (r == 0) continue;
        device_copy(NULL, state->host, state->device, matrix->p, bytes);
        orthogonalize(state->host, n, r);
        device_copy(state->device, matrix->p, NULL, state->host, bytes);
        multiply(matrix, (MatmulShape){true, false, m, r, n}, matrix->tensor->grad, matrix->p,
                 matrix->q);
    }
}

// Computes the gradient P Q' and subtracts this rank's share of it from the error: error -= share
// gradient. The kernels have no subtraction; -(-error + share gradient) has the same bits.
static void decompress_matrix(const Matrix *matrix, float share) {
    const ElementwiseKernels *kernels = device_kernels(matrix->tensor->device)->elementwise;
    const MatmulShape shape = {false, true, matrix->n, matrix->m, matrix->r};
    float *gradient = matrix->tensor->grad;
    size_t count = matrix->n * matrix->m;
    multiply(matrix, shape, matrix->p, matrix->q, gradient);
    if (!matrix->error) return;
    kernels->scale(matrix->error, -1, count);
    if (share != 1) kernels->scale(gradient, share, count);
    kernels->accumulate(matrix->error, gradient, count);
    kernels->scale(matrix->error, -1, count);
    if (share != 1) multiply(matrix, shape, matrix->p, matrix->q, gradient);
}

// Computes the gradients and their errors. `share` is this rank's share of the gradient:
// all of an average, 1/W of a sum.
static void decompress(PowerSgd *state, const GradBucket *bucket, float share) {
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        const Matrix *matrix = matrix_of(state, bucket->parameters[i]);
        if (matrix->r == 0) {
            device_copy(bucket->device, matrix->tensor->grad, state->device, matrix->p,
                        tensor_bytes(matrix->tensor));
            continue;
        }
        decompress_matrix(matrix, share);
        if (matrix->last_q)
            device_copy(NULL, matrix->last_q, state->device, matrix->q,
                        matrix->m * matrix->r * sizeof *matrix->q);
    }
}

static int finish(void *context, GradBucket *bucket, Error *err) {
    PowerSgd *state = context;
    BucketSlices *slices = &state->slices[bucket->index];
    if (slices->plain) {
        state->iteration += bucket->is_last;
        return pg_work_wait(bucket->work, NULL, &bucket->done_ns, err);
    }
    int failed = pg_work_wait(slices->rest_work, NULL, NULL, err);
    if (pg_work_wait(slices->p_work, NULL, NULL, err) != 0 || failed) return -1;
    project_back(state, bucket);
    PgWork *q = start_sum(state, bucket, slices->q, bucket->op, err);
    if (!q || pg_work_wait(q, NULL, NULL, err) != 0) return -1;
    decompress(state, bucket, bucket->op == PG_AVG ? 1 : 1 / (float)pg_size(state->group));
    state->iteration += bucket->is_last;
    state->compressed += bucket->is_last;
    return 0;
}

// ---- the hook -------------------------------------------------------------------------------

static const char NAME[] = "powerSGD";

static void add_tensor(HookState *list, const char *what, const char *name, DType dtype, int ndim,
                       size_t rows, size_t columns, void *memory) {
    HookTensor *tensor = &list->tensors[list->count++];
    *tensor = (HookTensor){.memory = memory};
    tensor->entry = (SafeEntry){.dtype = dtype, .ndim = ndim, .shape = {rows, columns}};
    tensor->entry.bytes = rows * columns * dtype_bytes(dtype);
    snprintf(tensor->entry.name, sizeof tensor->entry.name, "powersgd.%s%s", what, name);
}

static void list_state(PowerSgd *state) {
    HookState *list = &state->saved;
    *list = (HookState){.hook_name = NAME,
                        .group = state->group,
                        .tensors = memory_zalloc((2 * state->count + 2) * sizeof *list->tensors)};
    add_tensor(list, "iteration", "", DTYPE_I64, 0, 1, 1, &state->iteration);
    add_tensor(list, "compressed", "", DTYPE_I64, 0, 1, 1, &state->compressed);
    for (size_t i = 0; i < state->count; i++) {
        const Matrix *m = &state->matrices[i];
        if (m->last_q) add_tensor(list, "q.", m->name, DTYPE_F32, 2, m->m, m->r, m->last_q);
        if (!m->error) continue;
        add_tensor(list, "error.", m->name, DTYPE_F32, 2, m->n, m->m, m->error);
        list->tensors[list->count - 1].own = true;
        list->tensors[list->count - 1].device = m->tensor->device;
    }
}

CommHook power_sgd_hook(PowerSgd *state) {
    return (CommHook){.name = NAME,
                      .state = state,
                      .start = start,
                      .finish = finish,
                      .save = hook_state_gather,
                      .load = hook_state_restore};
}

// ---- the state ------------------------------------------------------------------------------

static float *device_zeros(Device *device, size_t count) {
    float *memory = device_alloc(device, count * sizeof *memory);
    device_kernels(device)->elementwise->fill(memory, 0.0f, count);
    return memory;
}

static Matrix plan(const NamedTensor *parameter, const PowerSgdConfig *config) {
    const Tensor *tensor = parameter->tensor;
    Matrix matrix = {.tensor = tensor, .name = parameter->name};
    size_t count = tensor_count(tensor);
    if (tensor->ndim < 2 || count == 0) return matrix;
    size_t n = tensor->shape[0], m = count / n, r = config->rank;
    r = r < n ? r : n;
    r = r < m ? r : m;
    if ((double)((n + m) * r) * config->min_compression_rate >= (double)(n * m)) return matrix;
    matrix.n = n;
    matrix.m = m;
    matrix.r = r;
    if (config->error_feedback) matrix.error = device_zeros(tensor->device, count);
    if (config->warm_start) matrix.last_q = memory_zalloc(m * r * sizeof *matrix.last_q);
    return matrix;
}

PowerSgd *power_sgd_create(Reducer *reducer, const PowerSgdConfig *config, Error *err) {
    if (config->start_iteration <= 1 && (config->error_feedback || config->warm_start))
        return error_null(
            err, STATUS_USAGE,
            "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
            "enabled, because PowerSGD can only be applied after the first two iterations "
            "in DDP.");
    const NamedTensors *parameters = &reducer->slab.parameters;
    PowerSgd *state = memory_zalloc(sizeof *state);
    *state = (PowerSgd){.config = *config, .group = reducer->group, .count = parameters->count};
    state->matrices = memory_zalloc(state->count * sizeof *state->matrices);
    state->slices = memory_zalloc(state->count * sizeof *state->slices);
    for (size_t i = 0; i < state->count; i++) {
        Matrix *matrix = &state->matrices[i];
        *matrix = plan(&parameters->items[i], config);
        state->p.count += matrix->n * matrix->r;
        state->q.count += matrix->m * matrix->r;
        state->rest.count += matrix->r ? 0 : tensor_count(matrix->tensor);
    }
    state->device = parameters->items[0].tensor->device;
    state->p.data = device_zeros(state->device, state->p.count);
    state->q.data = device_zeros(state->device, state->q.count);
    state->rest.data = device_zeros(state->device, state->rest.count);
    size_t most = state->p.count > state->q.count ? state->p.count : state->q.count;
    state->host = memory_zalloc(most * sizeof *state->host);
    list_state(state);
    return state;
}

void power_sgd_close(PowerSgd *state) {
    if (!state) return;
    for (size_t i = 0; i < state->count; i++) {
        const Matrix *matrix = &state->matrices[i];
        if (matrix->error)
            device_free(matrix->tensor->device, matrix->error,
                        matrix->n * matrix->m * sizeof *matrix->error);
        free(matrix->last_q);
    }
    free(state->matrices);
    free(state->slices);
    free(state->saved.tensors);
    device_free(state->device, state->p.data, state->p.count * sizeof(float));
    device_free(state->device, state->q.data, state->q.count * sizeof(float));
    device_free(state->device, state->rest.data, state->rest.count * sizeof(float));
    free(state->host);
    free(state);
}

int64_t power_sgd_iteration(const PowerSgd *state) {
    return state->iteration;
}

// ---- the command line -----------------------------------------------------------------------

static void add_options(Options *options, void *settings) {
    PowerSgdConfig *config = settings;
    *config = power_sgd_config_default();
    options_add_count(options, "powersgd-rank", &config->rank, 1, 1e6,
                      "columns of the matrices that are sent");
    options_add_count(options, "powersgd-start", &config->start_iteration, 2, 1e15,
                      "steps with a plain all-reduce before it");
}

static int check(const Options *options, Error *err) {
    static const char WHY[] = "it needs --comm-hook powersgd";
    const bool used = options_is(options, "comm-hook", "powersgd");
    if (used && options_is(options, "amp", "fp16"))
        return error_set(err, STATUS_USAGE,
                         "--comm-hook powersgd: with --amp fp16 gradients overflow now and then; "
                         "such a step is skipped, but PowerSGD would carry it on: use bf16");
    const OptionUse uses[] = {{"powersgd-rank", used, WHY}, {"powersgd-start", used, WHY}};
    return options_check_used(options, uses, 2, err);
}

static void close_power_sgd(void *state) {
    power_sgd_close(state);
}

// Reports how many tensors are compressed, and the ratio of bytes.
static void announce(const PowerSgd *state) {
    size_t compressed = 0, whole = state->rest.count;
    size_t sent = state->p.count + state->q.count + state->rest.count;
    for (size_t i = 0; i < state->count; i++) {
        compressed += state->matrices[i].r > 0;
        whole += state->matrices[i].n * state->matrices[i].m;
    }
    if (compressed == 0)
        fprintf(stderr,
                "powersgd: none of %zu tensor%s is a matrix that --powersgd-rank %zu would make %g "
                "times smaller: all gradients are sent whole\n",
                state->count, format_s(state->count), state->config.rank,
                state->config.min_compression_rate);
    else
        fprintf(stderr,
                "powersgd: compresses %zu of %zu tensor%s from step %zu on; %.1f times less "
                "travels then\n",
                compressed, state->count, format_s(state->count), state->config.start_iteration,
                (double)whole / (double)sent);
}

static CommHook make_hook(const char *name, const void *settings, Module *wrapper, size_t steps,
                          Error *err) {
    (void)name;
    const PowerSgdConfig *config = settings;
    PowerSgd *state = NULL;
    if (config->start_iteration < steps)
        state = power_sgd_create(ddp_reducer(wrapper), config, err);
    else
        error_set(err, STATUS_USAGE,
                  "--powersgd-start %zu: the run ends after step %zu, nothing would ever be "
                  "compressed",
                  config->start_iteration, steps - 1);
    if (!state) return (CommHook){.name = NULL};
    if (pg_rank(state->group) == 0) announce(state);
    CommHook hook = power_sgd_hook(state);
    hook.close = close_power_sgd; // the hook owns its state
    return hook;
}

const DdpFeature powersgd_hook_feature = {.settings_bytes = sizeof(PowerSgdConfig),
                                          .add_options = add_options,
                                          .check = check,
                                          .hook_names = "powersgd",
                                          .make_hook = make_hook};
