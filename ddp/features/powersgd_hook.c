/* powersgd_hook.c: per iteration and bucket, in this order:
 *
 *   start    M += error;  P = M Q;  all-reduce the vectors, and P (a sum: it is orthogonalised)
 *   finish   orthogonalise P;  Q = M' P;  all-reduce Q;  the gradient is P Q';  error = M - P Q'
 *
 * A bucket's P are contiguous, and so are its Q and its vectors: each is one all-reduce. The three
 * slabs hold all parameters; buckets take their slices in index order. Invariant: from start to
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
    float *q;       // [m, r] of the last iteration, host memory; NULL without warm start
} Matrix;

typedef struct SlabSlice { // the floats of the three slabs that one bucket uses
    float *p, *q, *rest;
    size_t p_count, q_count, rest_count;
    Work *p_work, *rest_work;
    bool plain; // before start_iteration: all-reduced uncompressed
} SlabSlice;

struct PowerSgd {
    PowerSgdConfig config;
    ProcessGroup *group;
    Matrix *matrices; // [count]
    size_t count;
    Device *device;
    float *p, *q, *rest; // slabs, device memory
    size_t p_count, q_count, rest_count;
    float *host;       // [the larger of p_count and q_count], scratch for one P or Q
    SlabSlice *slices; // [count], one for each bucket: there are never more buckets than parameters
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

static void add_error(Matrix *matrix) {
    const Tensor *tensor = matrix->tensor;
    if (!matrix->error) return;
    size_t count = tensor_count(tensor);
    device_kernels(tensor->device)->elementwise->accumulate(tensor->grad, matrix->error, count);
    device_copy(tensor->device, matrix->error, tensor->device, tensor->grad, count * sizeof(float));
}

static void project(const PowerSgd *state, const Matrix *matrix, float *p, float *q) {
    const Tensor *tensor = matrix->tensor;
    size_t n = matrix->n, m = matrix->m, r = matrix->r;
    if (matrix->q && state->compressed > 0)
        memcpy(state->host, matrix->q, m * r * sizeof *q);
    else
        draw_q(state, matrix, state->host, m * r);
    orthogonalize(state->host, m, r);
    device_copy(state->device, q, NULL, state->host, m * r * sizeof *q);
    device_kernels(tensor->device)
        ->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, false, n, r, m},
                         tensor->grad, q, p, false);
}

// Fills the bucket's slice of the slabs, behind the previous bucket's slice.
static SlabSlice *take_slice(PowerSgd *state, GradBucket *bucket) {
    SlabSlice *slice = &state->slices[bucket->index];
    *slice = (SlabSlice){.p = state->p, .q = state->q, .rest = state->rest};
    if (bucket->index > 0) {
        const SlabSlice *before = slice - 1;
        slice->p = before->p + before->p_count;
        slice->q = before->q + before->q_count;
        slice->rest = before->rest + before->rest_count;
    }
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Matrix *matrix = matrix_of(state, bucket->parameters[i]);
        size_t count = tensor_count(matrix->tensor);
        if (matrix->r == 0) {
            device_copy(state->device, slice->rest + slice->rest_count, bucket->device,
                        matrix->tensor->grad, count * sizeof(float));
            slice->rest_count += count;
            continue;
        }
        add_error(matrix);
        project(state, matrix, slice->p + slice->p_count, slice->q + slice->q_count);
        slice->p_count += matrix->n * matrix->r;
        slice->q_count += matrix->m * matrix->r;
    }
    return slice;
}

static Work *start_sum(const PowerSgd *state, const GradBucket *bucket, float *buffer, size_t count,
                       ReduceOp op, Error *err) {
    Collective sum = pg_all_reduce(buffer, count, PG_F32, op);
    return pg_start(state->group, pg_of_bucket(sum, bucket->index), err);
}

static int start(void *context, GradBucket *bucket, Error *err) {
    PowerSgd *state = context;
    if ((uint64_t)state->iteration < state->config.start_iteration) {
        state->slices[bucket->index] = (SlabSlice){.plain = true};
        bucket->work = start_sum(state, bucket, bucket->buffer, bucket->count, bucket->op, err);
        return bucket->work ? 0 : -1;
    }
    SlabSlice *slice = take_slice(state, bucket);
    slice->rest_work = start_sum(state, bucket, slice->rest, slice->rest_count, bucket->op, err);
    if (!slice->rest_work) return -1;
    slice->p_work = start_sum(state, bucket, slice->p, slice->p_count, PG_SUM, err);
    if (!slice->p_work) work_wait(slice->rest_work, NULL, NULL, err);
    return slice->p_work ? 0 : -1;
}

// Computes Q = M' P for each matrix of the bucket, with the all-reduced P.
static void project_back(PowerSgd *state, const GradBucket *bucket, SlabSlice *slice) {
    float *p = slice->p, *q = slice->q;
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Matrix *matrix = matrix_of(state, bucket->parameters[i]);
        size_t n = matrix->n, m = matrix->m, r = matrix->r;
        if (r == 0) continue;
        device_copy(NULL, state->host, state->device, p, n * r * sizeof *p);
        orthogonalize(state->host, n, r);
        device_copy(state->device, p, NULL, state->host, n * r * sizeof *p);
        device_kernels(bucket->device)
            ->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){true, false, m, r, n},
                             matrix->tensor->grad, p, q, false);
        p += n * r;
        q += m * r;
    }
}

// Computes the gradient P Q' and subtracts this rank's share of it from the error: error -= share
// gradient. The kernels have no subtraction; -(-error + share gradient) has the same bits.
static void decompress_matrix(const GradBucket *bucket, const Matrix *matrix, const float *p,
                              const float *q, float share) {
    const Kernels *kernels = device_kernels(bucket->device);
    float *gradient = matrix->tensor->grad;
    size_t n = matrix->n, m = matrix->m, r = matrix->r;
    kernels->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, true, n, m, r}, p,
                            q, gradient, false);
    if (!matrix->error) return;
    kernels->elementwise->scale(matrix->error, -1, n * m);
    if (share != 1) kernels->elementwise->scale(gradient, share, n * m);
    kernels->elementwise->accumulate(matrix->error, gradient, n * m);
    kernels->elementwise->scale(matrix->error, -1, n * m);
    if (share != 1)
        kernels->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, true, n, m, r},
                                p, q, gradient, false);
}

// Computes the gradients and their errors. `share` is this rank's share of the gradient:
// all of an average, 1/W of a sum.
static void decompress(PowerSgd *state, const GradBucket *bucket, const SlabSlice *slice,
                       float share) {
    const float *p = slice->p, *q = slice->q, *rest = slice->rest;
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Matrix *matrix = matrix_of(state, bucket->parameters[i]);
        size_t n = matrix->n, m = matrix->m, r = matrix->r, count = tensor_count(matrix->tensor);
        if (r == 0) {
            device_copy(bucket->device, matrix->tensor->grad, state->device, rest,
                        count * sizeof *rest);
            rest += count;
            continue;
        }
        decompress_matrix(bucket, matrix, p, q, share);
        if (matrix->q) device_copy(NULL, matrix->q, state->device, q, m * r * sizeof *q);
        p += n * r;
        q += m * r;
    }
}

static int finish(void *context, GradBucket *bucket, Error *err) {
    PowerSgd *state = context;
    SlabSlice *slice = &state->slices[bucket->index];
    if (slice->plain) {
        state->iteration += bucket->is_last;
        return work_wait(bucket->work, NULL, &bucket->done_ns, err);
    }
    int failed = work_wait(slice->rest_work, NULL, NULL, err);
    if (work_wait(slice->p_work, NULL, NULL, err) != 0 || failed) return -1;
    project_back(state, bucket, slice);
    Work *q = start_sum(state, bucket, slice->q, slice->q_count, bucket->op, err);
    if (!q || work_wait(q, NULL, NULL, err) != 0) return -1;
    decompress(state, bucket, slice, bucket->op == PG_AVG ? 1 : 1 / (float)pg_size(state->group));
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

// The caller frees its tensors with free().
static HookState list_state(PowerSgd *state) {
    HookState list = {.hook_name = NAME,
                      .group = state->group,
                      .tensors = memory_zalloc((2 * state->count + 2) * sizeof *list.tensors)};
    add_tensor(&list, "iteration", "", DTYPE_I64, 0, 1, 1, &state->iteration);
    add_tensor(&list, "compressed", "", DTYPE_I64, 0, 1, 1, &state->compressed);
    for (size_t i = 0; i < state->count; i++) {
        const Matrix *m = &state->matrices[i];
        if (m->q) add_tensor(&list, "q.", m->name, DTYPE_F32, 2, m->m, m->r, m->q);
        if (!m->error) continue;
        add_tensor(&list, "error.", m->name, DTYPE_F32, 2, m->n, m->m, m->error);
        list.tensors[list.count - 1].own = true;
        list.tensors[list.count - 1].device = m->tensor->device;
    }
    return list;
}

static int save(void *state, SafeTensors *content, Error *err) {
    HookState list = list_state(state);
    int status = hook_state_gather(&list, content, err);
    free(list.tensors);
    return status;
}

static int load(void *state, const char *path, const SafeTensors *content, Log *log, Error *err) {
    HookState list = list_state(state);
    int status = hook_state_restore(&list, path, content, log, err);
    free(list.tensors);
    return status;
}

CommHook power_sgd_hook(PowerSgd *state) {
    return (CommHook){
        .name = NAME, .state = state, .start = start, .finish = finish, .save = save, .load = load};
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
    if (config->warm_start) matrix.q = memory_zalloc(m * r * sizeof *matrix.q);
    return matrix;
}

PowerSgd *power_sgd_create(Reducer *reducer, const PowerSgdConfig *config, Error *err) {
    if (config->start_iteration <= 1 && (config->error_feedback || config->warm_start)) {
        error_set(err, STATUS_USAGE,
                  "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                  "enabled, because PowerSGD can only be applied after the first two iterations "
                  "in DDP.");
        return NULL;
    }
    const NamedTensors *parameters = reducer_parameters(reducer);
    PowerSgd *state = memory_zalloc(sizeof *state);
    *state =
        (PowerSgd){.config = *config, .group = reducer_group(reducer), .count = parameters->count};
    state->matrices = memory_zalloc(state->count * sizeof *state->matrices);
    state->slices = memory_zalloc(state->count * sizeof *state->slices);
    for (size_t i = 0; i < state->count; i++) {
        Matrix *matrix = &state->matrices[i];
        *matrix = plan(&parameters->items[i], config);
        state->p_count += matrix->n * matrix->r;
        state->q_count += matrix->m * matrix->r;
        state->rest_count += matrix->r ? 0 : tensor_count(matrix->tensor);
    }
    state->device = parameters->items[0].tensor->device;
    state->p = device_zeros(state->device, state->p_count);
    state->q = device_zeros(state->device, state->q_count);
    state->rest = device_zeros(state->device, state->rest_count);
    size_t most = state->p_count > state->q_count ? state->p_count : state->q_count;
    state->host = memory_zalloc(most * sizeof *state->host);
    return state;
}

void power_sgd_close(PowerSgd *state) {
    if (!state) return;
    for (size_t i = 0; i < state->count; i++) {
        const Matrix *matrix = &state->matrices[i];
        if (matrix->error)
            device_free(matrix->tensor->device, matrix->error,
                        matrix->n * matrix->m * sizeof *matrix->error);
        free(state->matrices[i].q);
    }
    free(state->matrices);
    free(state->slices);
    device_free(state->device, state->p, state->p_count * sizeof *state->p);
    device_free(state->device, state->q, state->q_count * sizeof *state->q);
    device_free(state->device, state->rest, state->rest_count * sizeof *state->rest);
    free(state->host);
    free(state);
}

int64_t power_sgd_iteration(const PowerSgd *state) {
    return state->iteration;
}

// ---- the command line -----------------------------------------------------------------------

typedef struct Settings {
    size_t rank, start_iteration; // of PowerSgdConfig
} Settings;

static void add_options(Options *options, void *settings) {
    Settings *own = settings;
    PowerSgdConfig defaults = power_sgd_config_default();
    *own = (Settings){defaults.rank, defaults.start_iteration};
    options_add_count(options, "powersgd-rank", &own->rank, 1, 1e6,
                      "columns of the matrices that travel");
    options_add_count(options, "powersgd-start", &own->start_iteration, 2, 1e15,
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

static int check_run(const void *settings, const char *comm_hook, size_t steps, Error *err) {
    const Settings *own = settings;
    if (strcmp(comm_hook, "powersgd") != 0 || own->start_iteration < steps) return 0;
    return error_set(err, STATUS_USAGE,
                     "--powersgd-start %zu: the run ends after step %zu, nothing would ever be "
                     "compressed",
                     own->start_iteration, steps - 1);
}

// Reports how many tensors are compressed, and the ratio of bytes.
static void announce(const PowerSgd *state) {
    size_t compressed = 0, whole = state->rest_count, travels;
    for (size_t i = 0; i < state->count; i++) {
        compressed += state->matrices[i].r > 0;
        whole += state->matrices[i].n * state->matrices[i].m;
    }
    travels = state->p_count + state->q_count + state->rest_count;
    if (compressed == 0)
        fprintf(stderr,
                "powersgd: none of %zu tensor%s is a matrix that --powersgd-rank %zu would make %g "
                "times smaller: all gradients travel whole\n",
                state->count, format_s(state->count), state->config.rank,
                state->config.min_compression_rate);
    else
        fprintf(stderr,
                "powersgd: compresses %zu of %zu tensor%s from step %llu on; %.1f times less "
                "travels then\n",
                compressed, state->count, format_s(state->count),
                (unsigned long long)state->config.start_iteration, (double)whole / (double)travels);
}

static CommHook make_hook(const char *name, const void *settings, Module *wrapper, Error *err) {
    (void)name;
    const Settings *own = settings;
    PowerSgdConfig config = power_sgd_config_default();
    config.rank = own->rank;
    config.start_iteration = own->start_iteration;
    PowerSgd *state = power_sgd_create(ddp_reducer(wrapper), &config, err);
    if (!state) return (CommHook){.name = NULL};
    if (pg_rank(state->group) == 0) announce(state);
    CommHook hook = power_sgd_hook(state);
    hook.close = close_power_sgd; // the hook owns its state
    return hook;
}

const DdpFeature powersgd_hook_feature = {.settings_bytes = sizeof(Settings),
                                          .add_options = add_options,
                                          .check = check,
                                          .check_run = check_run,
                                          .hook_names = "powersgd",
                                          .make_hook = make_hook};
