/* test_sync_batch_norm.c: SyncBatchNorm alone: ranks with shares of a batch compute what one device
 * computes with the whole batch: outputs, input gradients (also against central differences in
 * double), parameter gradients, running statistics. Further: the cases in which it is an ordinary
 * batch norm, and errors. Training: test_sync_batch_norm_ddp.c.
 *
 * Row numbers are those of tests/semantics.md. Tolerances are |a - b| <= t (1 + |b|): ranks
 * exchange statistics as floats and merge them in double, so one layer differs from one device by a
 * few roundings.
 */
#include "tests/rigs/sync_norm_rig.h"

#include "common/nn/ops_half.h"
#include "ddp/features/sync_batch_norm.h"

enum { C = 5, MAX_VALUES = 24 * C * 9 };

static const double LAYER = 2e-6;

// ---- the layer alone ------------------------------------------------------------------------

// Element i of the whole batch [rows, C, inner], and of the gradient of its output.
static float x_value(size_t i, size_t inner) {
    float channel = (float)(i / inner % C);
    return 2 * channel - 3 + (0.5f + channel) * rng_normal(1, RNG_STREAM_TEST, i);
}

static float dy_value(size_t i) {
    return rng_normal(2, RNG_STREAM_TEST, i);
}

static Module *norm_layer(Device *device) {
    Module *layer = layer_batch_norm(device, C);
    for (size_t i = 0; i < C; i++) {
        tensor_f32(module_parameter(layer, 0))[i] = 1.5f - 0.5f * (float)i;
        tensor_f32(module_parameter(layer, 1))[i] = 0.25f * (float)i;
    }
    return layer;
}

// Runs forward and backward of rows [first, first + rows).
static int run_layer(Module *layer, Tape *tape, size_t inner, size_t first, size_t rows, Tensor **x,
                     Tensor **y, Error *err) {
    float values[MAX_VALUES];
    size_t count = rows * C * inner, from = first * C * inner;
    CHECK(count <= MAX_VALUES, "%zu values", count);
    tape_reset(tape);
    module_zero_grad(layer);
    for (size_t i = 0; i < count; i++) values[i] = x_value(from + i, inner);
    size_t side = inner == 9 ? 3 : inner, shape[] = {rows, C, side, inner / side};
    *x = tape_input(tape, DTYPE_F32, inner == 1 ? 2 : 4, shape, values);
    (*x)->requires_grad = true;
    *y = module_forward(layer, tape, *x);
    if (tape_error(tape, err) != 0) return -1;
    float *dy = tape_make_grad(tape, *y);
    for (size_t i = 0; i < count; i++) dy[i] = dy_value(from + i);
    return tape_backward(tape, *y, err);
}

// One device's results in `steps` identical steps.
typedef struct Whole {
    Shares shares;
    int steps;
    float y[MAX_VALUES], dx[MAX_VALUES], slope[MAX_VALUES]; // slope: dx by central differences
    float dweight[C], dbias[C], running_mean[C], running_var[C];
} Whole;

static double objective(const double *x, size_t rows, size_t inner, const Module *layer) {
    double sum = 0, count = (double)(rows * inner);
    for (size_t c = 0; c < C; c++) {
        double mean = 0, squares = 0;
        double weight = (double)tensor_f32(&layer->parameters[0].tensor)[c];
        double bias = (double)tensor_f32(&layer->parameters[1].tensor)[c];
        for (size_t i = 0; i < rows * C * inner; i++)
            if (i / inner % C == c) mean += x[i] / count;
        for (size_t i = 0; i < rows * C * inner; i++)
            if (i / inner % C == c) squares += (x[i] - mean) * (x[i] - mean);
        double invstd = 1 / sqrt(squares / count + (double)1e-5f);
        for (size_t i = 0; i < rows * C * inner; i++)
            if (i / inner % C == c)
                sum += (double)dy_value(i) * ((x[i] - mean) * invstd * weight + bias);
    }
    return sum;
}

static void differentiate(Whole *whole, const Module *layer) {
    const double step = 1e-4;
    double x[MAX_VALUES];
    size_t rows = all_rows(&whole->shares), inner = whole->shares.inner, count = rows * C * inner;
    for (size_t i = 0; i < count; i++) x[i] = (double)x_value(i, inner);
    for (size_t i = 0; i < count; i++) {
        double at = x[i];
        x[i] = at + step;
        double above = objective(x, rows, inner, layer);
        x[i] = at - step;
        whole->slope[i] = (float)((above - objective(x, rows, inner, layer)) / (2 * step));
        x[i] = at;
    }
}

static void compute_whole(Whole *whole) {
    Error err = {0};
    Device *device = open_device(0);
    Module *layer = norm_layer(device);
    Tape *tape = tape_create(device, NULL);
    Tensor *x, *y;
    for (int step = 0; step < whole->steps; step++)
        CHECK_OK(run_layer(layer, tape, whole->shares.inner, 0, all_rows(&whole->shares), &x, &y,
                           &err) == 0,
                 err);
    memcpy(whole->y, y->data, tensor_bytes(y));
    memcpy(whole->dx, x->grad, tensor_bytes(x));
    memcpy(whole->dweight, module_parameter(layer, 0)->grad, sizeof whole->dweight);
    memcpy(whole->dbias, module_parameter(layer, 1)->grad, sizeof whole->dbias);
    memcpy(whole->running_mean, layer->buffers[0].tensor.data, sizeof whole->running_mean);
    memcpy(whole->running_var, layer->buffers[1].tensor.data, sizeof whole->running_var);
    differentiate(whole, layer);
    tape_close(tape);
    module_close(layer);
    device_close(device);
}

// Parameter gradients are local: their sum equals one device's. Running statistics have equal bits
// on all ranks.
static void check_layer(ProcessGroup *group, const Whole *whole, Module *layer, Outcome *outcome) {
    float grads[2 * C], stats[2 * C], all[RANKS_MAX * 2 * C];
    memcpy(grads, module_parameter(layer, 0)->grad, C * sizeof *grads);
    memcpy(grads + C, module_parameter(layer, 1)->grad, C * sizeof *grads);
    memcpy(stats, layer->buffers[0].tensor.data, C * sizeof *stats);
    memcpy(stats + C, layer->buffers[1].tensor.data, C * sizeof *stats);
    EXPECT(pg_run(group, pg_all_reduce(grads, 2 * C, PG_F32, PG_SUM), &outcome->error) == 0);
    EXPECT(pg_run(group, pg_all_gather(stats, all, 2 * C, PG_F32), &outcome->error) == 0);
    compare(outcome, grads, whole->dweight, C, 5 * LAYER, "gradient of weight");
    compare(outcome, grads + C, whole->dbias, C, LAYER, "gradient of bias");
    compare(outcome, stats, whole->running_mean, C, LAYER, "running_mean");
    compare(outcome, stats + C, whole->running_var, C, LAYER, "running_var");
    for (int r = 0; r < pg_size(group); r++)
        EXPECT(memcmp(all + r * 2 * C, stats, sizeof stats) == 0);
    EXPECT(*(int64_t *)layer->buffers[2].tensor.data == whole->steps);
}

static void play_layer(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Whole *whole = argument;
    const Shares *s = &whole->shares;
    int rank = pg_rank(group), last = whole->steps - 1;
    Device *device = open_device(rank);
    Module *layer = norm_layer(device);
    Tape *tape = tape_create(device, NULL);
    Tensor *x = NULL, *y = NULL;
    Error *err = &outcome->error;
    EXPECT(sync_batch_norm_convert(layer, group, err) == layer);
    for (int step = 0; step <= last && !err->status; step++)
        run_layer(layer, tape, s->inner, rows_before(s, step, rank), rows_of(s, step, rank), &x, &y,
                  err);
    if (err->status) {
        problem(outcome, "%s", err->message);
    } else {
        size_t from = rows_before(s, last, rank) * C * s->inner, count = tensor_count(y);
        compare(outcome, tensor_f32(y), whole->y + from, count, LAYER, "y");
        compare(outcome, x->grad, whole->dx + from, count, LAYER, "dx");
        compare(outcome, x->grad, whole->slope + from, count, 1e-5, "dx by differences");
        check_layer(group, whole, layer, outcome);
    }
    tape_close(tape);
    module_close(layer);
    device_close(device);
}

static void check_shares(Shares shares) {
    Whole *whole = memory_zalloc(sizeof *whole);
    *whole = (Whole){.shares = shares, .steps = 3};
    compute_whole(whole);
    on_threads_and_processes(play_layer, shares.world, whole);
    free(whole);
}

static void row_69_layer_equals_one_device(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++) {
        check_shares((Shares){world, {4, 4, 4, 4}, 1});                // a matrix
        check_shares((Shares){world, {2, 2, 2, 2}, 9});                // images of 3x3
        if (world > 1) check_shares((Shares){world, {1, 1, 1, 1}, 1}); // one input per process
    }
}

static void row_71_layer_with_uneven_batches(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++) {
        check_shares((Shares){world, {2, 3, 4, 5}, 9});
        check_shares((Shares){world, {7, 1, 2, 1}, 1});
    }
}

static void row_72_layer_with_empty_batches(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++) {
        check_shares((Shares){world, {3, 0, 2, 1}, 9});
        check_shares((Shares){world, {6, 0, 0, 0}, 1});
        check_shares((Shares){world, {0, 2, 0, 5}, 2});
    }
}

// No rank has rows: nothing changes, and no rank blocks.
static void all_empty(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Device *device = open_device(pg_rank(group));
    Module *layer = norm_layer(device);
    Tape *tape = tape_create(device, NULL);
    Tensor *x, *y;
    EXPECT(sync_batch_norm_convert(layer, group, &outcome->error) == layer);
    EXPECT(run_layer(layer, tape, 9, 0, 0, &x, &y, &outcome->error) == 0);
    for (size_t i = 0; i < C; i++) {
        EXPECT(tensor_f32(&layer->buffers[0].tensor)[i] == 0);
        EXPECT(tensor_f32(&layer->buffers[1].tensor)[i] == 1);
        EXPECT(module_parameter(layer, 0)->grad[i] == 0);
        EXPECT(module_parameter(layer, 1)->grad[i] == 0);
    }
    tape_close(tape);
    module_close(layer);
    device_close(device);
}

static void row_72_all_ranks_empty(void **state) {
    (void)state;
    on_threads_and_processes(all_empty, 3, NULL);
}

// Two halves of the job run at the same time, each with its own batch.
static void play_halves(ProcessGroup *world, const void *argument, Outcome *outcome) {
    const Whole *wholes = argument;
    int half = pg_rank(world) % 2;
    ProcessGroup *group = pg_split(world, half, &outcome->error);
    if (group)
        play_layer(group, &wholes[half], outcome);
    else
        problem(outcome, "%s", outcome->error.message);
    pg_close(group);
}

static void row_73_process_subgroups(void **state) {
    (void)state;
    Whole *wholes = memory_zalloc(2 * sizeof *wholes);
    wholes[0] = (Whole){.shares = {3, {2, 0, 5}, 9}, .steps = 4};
    wholes[1] = (Whole){.shares = {2, {3, 1}, 9}, .steps = 7}; // other steps: no common pace
    for (int half = 0; half < 2; half++) compute_whole(&wholes[half]);
    on_threads_and_processes(play_halves, 5, wholes);
    free(wholes);
}

// ---- in 16 bits -----------------------------------------------------------------------------

typedef struct Stored { // 16-bit output and gradient of `rows` rows
    Precision precision;
    size_t first, rows; // images of 3x3
    DType dtype;
    float y[MAX_VALUES], dx[MAX_VALUES];
} Stored;

// Runs one step on a device that stores 16 bits. Without a group it has all rows.
static int run_stored(ProcessGroup *group, Stored *s, Error *err) {
    float values[MAX_VALUES];
    char name[16];
    size_t count = s->rows * C * 9, from = s->first * C * 9;
    snprintf(name, sizeof name, "ref:%d", group ? pg_rank(group) : 0);
    Device *device = device_open(name, err);
    CHECK(device, "%s", err->message);
    Module *layer = norm_layer(device);
    Tape *tape = tape_create(device, NULL);
    tape->precision = s->precision;
    for (size_t i = 0; i < count; i++) values[i] = x_value(from + i, 9);
    Tensor *x = tape_input(tape, DTYPE_F32, 4, (size_t[]){s->rows, C, 3, 3}, values);
    x->requires_grad = true;
    if (group) sync_batch_norm_convert(layer, group, err);
    Tensor *y = module_forward(layer, tape, op_half(tape, x)), *wide = op_float32(tape, y);
    CHECK(wide, "%s", tape->error.message);
    s->dtype = y->dtype;
    memcpy(s->y, wide->data, count * sizeof(float));
    float *dy = tape_make_grad(tape, wide);
    for (size_t i = 0; i < count; i++) dy[i] = dy_value(from + i);
    int status = tape_backward(tape, wide, err);
    memcpy(s->dx, x->grad, count * sizeof(float));
    tape_close(tape);
    module_close(layer);
    device_close(device);
    return status;
}

// A value midway between two 16-bit numbers may be rounded to either.
static void play_stored(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Stored *whole = argument;
    size_t rows = whole->rows / (size_t)pg_size(group), first = (size_t)pg_rank(group) * rows;
    double unit = whole->precision == PRECISION_F16 ? 0x1p-10 : 0x1p-7;
    Stored *own = memory_zalloc(sizeof *own);
    *own = (Stored){.precision = whole->precision, .first = first, .rows = rows};
    EXPECT(run_stored(group, own, &outcome->error) == 0);
    EXPECT(own->dtype == whole->dtype && own->dtype != DTYPE_F32);
    compare(outcome, own->y, whole->y + first * C * 9, rows * C * 9, unit, "y");
    compare(outcome, own->dx, whole->dx + first * C * 9, rows * C * 9, unit, "dx");
    free(own);
}

// As under autocast, 16-bit inputs give 16-bit outputs, without a float32 copy of either.
static void row_69_layer_in_16_bits(void **state) {
    (void)state;
    for (int p = PRECISION_BF16; p <= PRECISION_F16; p++) {
        Error err = {0};
        Stored *whole = memory_zalloc(sizeof *whole);
        *whole = (Stored){.precision = (Precision)p, .rows = 6};
        CHECK_OK(run_stored(NULL, whole, &err) == 0, err);
        on_threads_and_processes(play_stored, 3, whole);
        free(whole);
    }
}

// ---- cases of an ordinary batch norm --------------------------------------------------------

static void forward_into(Module *layer, Tape *tape, float y[6 * C]) {
    float values[6 * C];
    for (size_t i = 0; i < 6 * C; i++) values[i] = x_value(i, 1);
    tape_reset(tape);
    const Tensor *out =
        module_forward(layer, tape, tape_input(tape, DTYPE_F32, 2, (size_t[]){6, C}, values));
    CHECK(out, "%s", tape->error.message);
    memcpy(y, out->data, 6 * C * sizeof *y);
}

// Rank 0 evaluates alone, and each rank trains in a group of its own. Converting keeps the names,
// types and addresses of tensors.
static void fall_back(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float plain[2][6 * C], synced[2][6 * C];
    int rank = pg_rank(group);
    Device *device = open_device(rank);
    Tape *tape = tape_create(device, NULL);
    ProcessGroup *alone = pg_split(group, rank, &outcome->error);
    Module *layers[] = {norm_layer(device), norm_layer(device), norm_layer(device)};
    void *data = layers[1]->buffers[0].tensor.data;
    EXPECT(sync_batch_norm_convert(layers[1], group, &outcome->error) == layers[1]);
    EXPECT(sync_batch_norm_convert(layers[1], group, &outcome->error) == layers[1]); // no-op
    EXPECT(sync_batch_norm_convert(layers[2], alone, &outcome->error) == layers[2]);
    pg_close(alone);
    EXPECT(strcmp(layers[1]->type, "SyncBatchNorm") == 0);
    EXPECT(layers[1]->parameter_count == 2 && layers[1]->buffer_count == 3);
    EXPECT(layers[1]->buffers[0].tensor.data == data);
    forward_into(layers[0], tape, plain[1]);
    forward_into(layers[2], tape, synced[1]);
    EXPECT(memcmp(plain[1], synced[1], sizeof plain[1]) == 0);
    if (rank == 0) {
        tape->training = false;
        module_close(layers[0]);
        layers[0] = norm_layer(device);
        forward_into(layers[0], tape, plain[0]);
        forward_into(layers[1], tape, synced[0]);
        EXPECT(memcmp(plain[0], synced[0], sizeof plain[0]) == 0);
    }
    tape_close(tape);
    for (int i = 0; i < 3; i++) module_close(layers[i]);
    device_close(device);
}

static void row_41_evaluation_alone_and_a_group_of_one(void **state) {
    (void)state;
    on_threads_and_processes(fall_back, 3, NULL);
}

// ---- errors ---------------------------------------------------------------------------------

typedef struct Fault {
    int ndim[2]; // dimensions of the inputs of ranks 0 and 1
    size_t shape[2][4], channels[2];
    const char *words[2]; // of each rank's error; NULL: this rank may see none
} Fault;

static void play_fault(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Fault *fault = argument;
    int rank = pg_rank(group);
    float values[64] = {0};
    Device *device = open_device(rank);
    Module *layer = layer_batch_norm(device, fault->channels[rank]);
    Tape *tape = tape_create(device, NULL);
    EXPECT(sync_batch_norm_convert(layer, group, &outcome->error) == layer);
    Tensor *x = tape_input(tape, DTYPE_F32, fault->ndim[rank], fault->shape[rank], values);
    EXPECT(module_forward(layer, tape, x) == NULL);
    tape_error(tape, &outcome->error);
    tape_close(tape);
    module_close(layer);
    device_close(device);
}

static void check_fault(Fault fault) {
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        Outcome outcomes[RANKS_MAX];
        play_ranks(mode, 2, 60, play_fault, &fault, outcomes);
        for (int r = 0; r < 2; r++) check_message(&outcomes[r].error, fault.words[r]);
    }
}

static void row_69_errors(void **state) {
    (void)state;
    const char *flat = "sync_batch_norm on cpu:0: expected at least 2D input (got 1D input)";
    const char *left = "sync_batch_norm on cpu:1: collective 1 all_gather(F32, 7): rank 0";
    check_fault((Fault){{1, 2}, {{4}, {4, 3}}, {3, 3}, {flat, left}});
    check_fault((Fault){{3, 2},
                        {{4, 3, 2}, {4, 3}},
                        {3, 3},
                        {"expected [n, 3] or [n, 3, h, w], got [4, 3, 2]", left}});
    const char *none = "number of input channels should be non-zero";
    check_fault((Fault){{2, 2}, {{4, 0}, {4, 0}}, {3, 3}, {none, none}});
    const char *other = "collective 1: ranks disagree: rank 0 runs all_gather(F32, 7), rank 1 runs "
                        "all_gather(F32, 9)";
    check_fault((Fault){{2, 2}, {{4, 3}, {4, 4}}, {3, 4}, {other, other}});
    const char *one =
        "Expected more than 1 value per channel when training, got 1 in all of 2 ranks";
    check_fault((Fault){{2, 2}, {{0, 3}, {1, 3}}, {3, 3}, {one, one}});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_69_layer_equals_one_device),
        cmocka_unit_test(row_71_layer_with_uneven_batches),
        cmocka_unit_test(row_72_layer_with_empty_batches),
        cmocka_unit_test(row_72_all_ranks_empty),
        cmocka_unit_test(row_73_process_subgroups),
        cmocka_unit_test(row_69_layer_in_16_bits),
        cmocka_unit_test(row_41_evaluation_alone_and_a_group_of_one),
        cmocka_unit_test(row_69_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
