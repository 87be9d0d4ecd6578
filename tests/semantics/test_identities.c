/* test_identities.c: for each way of splitting a batch over ranks, devices or micro-batches, its
 * gradient, and whether it equals the gradient of one device with the whole batch (second table of
 * tests/semantics.md).
 *
 * Each gradient is compared twice: bit for bit with its formula, evaluated by one process on the
 * ranks' local gradients in rank order; and with one device's gradient, to PyTorch's tolerance.
 * Where the two must *not* agree, the test requires a difference.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/data/sampler.h"
#include "ddp/features/join_ddp.h"
#include "dp/data_parallel.h"

enum { SEED = 5, BATCH_MAX = 32 };

// ---- losses and gradients ---------------------------------------------------------------------

// Sum of the losses of rows [first, first + rows) of an endless batch, divided by `divisor`.
static Tensor *rows_loss(Tape *tape, Module *module, size_t first, size_t rows, double divisor) {
    float images[BATCH_MAX * IMAGE];
    int64_t labels[BATCH_MAX];
    CHECK(rows <= BATCH_MAX, "%zu rows", rows);
    for (size_t i = 0; i < rows * IMAGE; i++)
        images[i] = rng_uniform(1, RNG_STREAM_TEST, first * IMAGE + i, -1, 1);
    for (size_t i = 0; i < rows; i++)
        labels[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, first + i, CLASSES);
    Tensor *x = tape_input(tape, DTYPE_F32, 4, (size_t[]){rows, 1, 8, 8}, images);
    Tensor *y = module_forward(module, tape, x);
    return op_cross_entropy(tape, y, tape_input(tape, DTYPE_I64, 1, &rows, labels), divisor);
}

typedef struct Gradient {
    float *values; // all parameters' gradients, concatenated
    size_t count;
} Gradient;

static Gradient gradient_of(Module *module) {
    Gradient all = {NULL, 0};
    NamedTensors tensors = module_tensors(module, MODULE_PARAMETERS);
    for (size_t i = 0; i < tensors.count; i++) {
        size_t more = tensor_count(tensors.items[i].tensor);
        CHECK(tensors.items[i].tensor->has_grad, "%s has no gradient", tensors.items[i].name);
        all.values = memory_grow(all.values, all.count + more, sizeof *all.values);
        memcpy(all.values + all.count, tensors.items[i].tensor->grad, more * sizeof *all.values);
        all.count += more;
    }
    named_tensors_free(&tensors);
    return all;
}

static void run_backward(Tape *tape, Tensor *loss) {
    Error err = {0};
    CHECK(tape_error(tape, &err) == 0 && tape_backward(tape, loss, &err) == 0, "%s", err.message);
}

// Gradient of `rows` rows on one device, without a wrapper.
static Gradient alone(Rig *rig, Module *plain, size_t first, size_t rows, double divisor) {
    tape_reset(rig->tape);
    module_zero_grad(plain);
    run_backward(rig->tape, rows_loss(rig->tape, plain, first, rows, divisor));
    return gradient_of(plain);
}

// Runs backward from a loss of the wrapper and returns the reduced gradient.
static Gradient reduced(Rig *rig, Tensor *loss) {
    Error err = {0};
    run_backward(rig->tape, loss);
    CHECK(ddp_finish_backward(rig->wrapper, NULL, &err) == 0, "%s", err.message);
    return gradient_of(rig->model);
}

// sum = rank == 0 ? more : sum + more. Frees `more`.
static void add_rank(Gradient *sum, int rank, Gradient more) {
    if (rank == 0) {
        *sum = more;
        return;
    }
    for (size_t i = 0; i < sum->count; i++) sum->values[i] += more.values[i];
    free(more.values);
}

static void multiply(Gradient *gradient, double factor) {
    for (size_t i = 0; i < gradient->count; i++) gradient->values[i] *= (float)factor;
}

static bool same_bits(const Gradient *a, const Gradient *b) {
    return a->count == b->count && memcmp(a->values, b->values, a->count * sizeof(float)) == 0;
}

// PyTorch's default for float32: rtol 1.3e-6, atol 1e-5.
static bool near(const Gradient *a, const Gradient *b) {
    for (size_t i = 0; i < a->count; i++)
        if (!(fabsf(a->values[i] - b->values[i]) <= 1e-5f + 1.3e-6f * fabsf(b->values[i])))
            return false;
    return true;
}

// A different gradient rather than rounding: some element differs by 1 % of the largest one.
static bool far(const Gradient *a, const Gradient *b) {
    float largest = 0, apart = 0;
    for (size_t i = 0; i < a->count; i++) {
        largest = fmaxf(largest, fabsf(b->values[i]));
        apart = fmaxf(apart, fabsf(a->values[i] - b->values[i]));
    }
    return largest > 1e-2f && apart > 1e-2f * largest;
}

// ---- DDP: divisors of each rank's loss --------------------------------------------------------

typedef enum LossKind {
    LOCAL_MEAN,  // PyTorch's default
    SCALED_MEAN, // the local mean times W b_r / B
    LOCAL_SUM,
    GLOBAL_MEAN, // the local sum over B; the reduction sums
} LossKind;

typedef struct Shares {
    LossKind kind;
    int world;
    size_t rows[RANKS_MAX]; // b_r
} Shares;

static size_t rows_before(const Shares *shares, int rank) {
    size_t rows = 0;
    for (int r = 0; r < rank; r++) rows += shares->rows[r];
    return rows;
}

static Tensor *rank_loss(Tape *tape, Module *module, const Shares *shares, int rank) {
    size_t first = rows_before(shares, rank), rows = shares->rows[rank];
    double all = (double)rows_before(shares, shares->world), mine = (double)rows;
    if (shares->kind == LOCAL_SUM) return rows_loss(tape, module, first, rows, 1);
    if (shares->kind == GLOBAL_MEAN) return rows_loss(tape, module, first, rows, all);
    Tensor *mean = rows_loss(tape, module, first, rows, mine);
    return shares->kind == LOCAL_MEAN ? mean : op_divide(tape, mean, all / (mine * shares->world));
}

static Gradient formula(Rig *rig, Module *plain, const Shares *shares) {
    Gradient sum = {NULL, 0};
    for (int r = 0; r < shares->world; r++) {
        tape_reset(rig->tape);
        module_zero_grad(plain);
        run_backward(rig->tape, rank_loss(rig->tape, plain, shares, r));
        add_rank(&sum, r, gradient_of(plain));
    }
    if (shares->kind != GLOBAL_MEAN) multiply(&sum, 1.0 / shares->world);
    return sum;
}

static void divide_losses(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Shares *shares = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.002;
    config.global_normalization = shares->kind == GLOBAL_MEAN;
    rig_wrap(rig, test_model("shared", SEED, rig->device), &config);
    Module *plain = test_model("shared", SEED, rig->device);
    size_t all = rows_before(shares, shares->world);
    bool sum = shares->kind == LOCAL_SUM, equal = true;
    for (int r = 0; r < shares->world; r++) equal = equal && shares->rows[r] == shares->rows[0];

    Gradient ddp = reduced(rig, rank_loss(rig->tape, rig->wrapper, shares, rig->rank));
    Gradient own = formula(rig, plain, shares);
    Gradient single = alone(rig, plain, 0, all, sum ? 1 : (double)all);
    EXPECT(same_bits(&ddp, &own));
    if (shares->world == 1) EXPECT(same_bits(&ddp, &single));
    if (sum) { // scaled by 1/W
        if (shares->world > 1) EXPECT(far(&ddp, &single));
        multiply(&ddp, (double)shares->world / (double)all);
        multiply(&single, 1 / (double)all);
    }
    if (shares->kind != LOCAL_MEAN || equal)
        EXPECT(near(&ddp, &single));
    else
        EXPECT(far(&ddp, &single));
    free(ddp.values);
    free(own.values);
    free(single.values);
    module_close(plain);
    rig_close(rig);
}

static void play_losses(LossKind kind) {
    for (int world = 1; world <= 5; world++) {
        play_both(world, divide_losses, &(Shares){kind, world, {4, 4, 4, 4, 4}}, NULL);
        if (world == 1) continue;
        play_both(world, divide_losses, &(Shares){kind, world, {3, 1, 4, 2, 6}}, NULL);
    }
}

static void ddp_local_mean(void **state) {
    (void)state;
    play_losses(LOCAL_MEAN);
}

static void ddp_local_mean_times_w_b_over_b(void **state) {
    (void)state;
    play_losses(SCALED_MEAN);
}

static void ddp_local_sum_is_one_w_th(void **state) {
    (void)state;
    play_losses(LOCAL_SUM);
}

static void ddp_global_mean(void **state) {
    (void)state;
    play_losses(GLOBAL_MEAN);
}

// ---- DDP: micro-batches in no_sync ------------------------------------------------------------

enum { MICRO = 3, MICRO_ROWS = 6 }; // K micro-batches with 6 rows in total

static Tensor *micro_loss(Tape *tape, Module *module, const size_t *sizes, int rank, int k) {
    size_t first = (size_t)rank * MICRO_ROWS;
    for (int before = 0; before < k; before++) first += sizes[before];
    tape_reset(tape);
    return op_divide(tape, rows_loss(tape, module, first, sizes[k], (double)sizes[k]), MICRO);
}

static Gradient micro_formula(Rig *rig, Module *plain, const size_t *sizes) {
    Gradient sum = {NULL, 0};
    for (int r = 0; r < rig->world; r++) {
        module_zero_grad(plain);
        for (int k = 0; k < MICRO; k++)
            run_backward(rig->tape, micro_loss(rig->tape, plain, sizes, r, k));
        add_rank(&sum, r, gradient_of(plain));
    }
    multiply(&sum, 1.0 / rig->world);
    return sum;
}

static void accumulate(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const size_t *sizes = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, test_model("shared", SEED, rig->device), &config);
    Module *plain = test_model("shared", SEED, rig->device);
    for (int k = 0; k < MICRO - 1; k++) {
        bool before = ddp_no_sync_begin(rig->wrapper);
        run_backward(rig->tape, micro_loss(rig->tape, rig->wrapper, sizes, rig->rank, k));
        ddp_no_sync_end(rig->wrapper, before);
    }
    Gradient micro = reduced(rig, micro_loss(rig->tape, rig->wrapper, sizes, rig->rank, MICRO - 1));
    Gradient own = micro_formula(rig, plain, sizes);
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    Gradient whole = reduced(rig, rows_loss(rig->tape, rig->wrapper, (size_t)rig->rank * MICRO_ROWS,
                                            MICRO_ROWS, MICRO_ROWS));
    EXPECT(same_bits(&micro, &own));
    EXPECT(sizes[0] == sizes[1] ? near(&micro, &whole) : far(&micro, &whole));
    free(micro.values);
    free(own.values);
    free(whole.values);
    module_close(plain);
    rig_close(rig);
}

static void ddp_micro_batches_in_no_sync(void **state) {
    (void)state;
    static const size_t equal[MICRO] = {2, 2, 2}, unequal[MICRO] = {1, 4, 1};
    for (int world = 1; world <= 4; world++) {
        play_both(world, accumulate, equal, NULL);
        play_both(world, accumulate, unequal, NULL);
    }
}

// ---- DDP: Join --------------------------------------------------------------------------------

enum { JOIN_ROWS = 3 };

// Rank r has r + 1 batches: in iteration i, ranks i, i + 1, ... train, and joined ranks contribute
// zeros.
static size_t first_row(const Rig *rig, int i, int rank) {
    return (size_t)(i * rig->world + rank) * JOIN_ROWS;
}

static Gradient join_formula(Rig *rig, Module *plain, int i, int divisor) {
    Gradient sum = {NULL, 0};
    for (int r = 0; r < rig->world; r++) {
        Gradient more = alone(rig, plain, first_row(rig, i, r), JOIN_ROWS, JOIN_ROWS);
        if (r < i) memset(more.values, 0, more.count * sizeof *more.values);
        add_rank(&sum, r, more);
    }
    multiply(&sum, 1.0 / divisor);
    return sum;
}

static void joined(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const JoinConfig *join_config = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, test_model("shared", SEED, rig->device), &config);
    Module *plain = test_model("shared", SEED, rig->device);
    Joinable joinable = ddp_joinable(rig->wrapper);
    Join *join = join_open(&joinable, 1, join_config, &outcome->error);
    CHECK(join, "%s", outcome->error.message);
    for (int i = 0; i <= rig->rank; i++) {
        int active = rig->world - i;
        int divisor = join_config->divide_by_active_ranks ? active : rig->world;
        tape_reset(rig->tape);
        module_zero_grad(rig->model);
        Gradient got = reduced(rig, rows_loss(rig->tape, rig->wrapper, first_row(rig, i, rig->rank),
                                              JOIN_ROWS, JOIN_ROWS));
        Gradient own = join_formula(rig, plain, i, divisor);
        size_t rows = (size_t)active * JOIN_ROWS;
        Gradient single = alone(rig, plain, first_row(rig, i, i), rows, (double)rows);
        EXPECT(same_bits(&got, &own));
        EXPECT(divisor == active ? near(&got, &single) : far(&got, &single)); // tail: too small
        multiply(&got, (double)divisor / active);
        EXPECT(near(&got, &single));
        free(got.values);
        free(own.values);
        free(single.values);
    }
    EXPECT(join_end(join, &outcome->error) == 0);
    module_close(plain);
    rig_close(rig);
}

static void ddp_join_by_all_and_by_active_ranks(void **state) {
    (void)state;
    for (int by_active = 0; by_active <= 1; by_active++) {
        const JoinConfig config = {.divide_by_active_ranks = by_active};
        for (int world = 1; world <= 4; world++) play_both(world, joined, &config, NULL);
    }
}

// ---- DP and DDP with batch norm: chunk c of DP is what rank c has -----------------------------

typedef struct NormCase {
    size_t batch;
    bool average; // of local means; else the loss is divided by the batch
} NormCase;

static bool same_buffers(Module *a, Module *b) {
    NamedTensors mine = module_tensors(a, MODULE_BUFFERS);
    NamedTensors theirs = module_tensors(b, MODULE_BUFFERS);
    bool same = mine.count > 0;
    for (size_t i = 0; i < mine.count; i++)
        same = same && memcmp(mine.items[i].tensor->data, theirs.items[i].tensor->data,
                              tensor_bytes(mine.items[i].tensor)) == 0;
    named_tensors_free(&mine);
    named_tensors_free(&theirs);
    return same;
}

// Compares rank 0's gradient with DataParallel on `world` devices (equal bits) and with one device.
static void compare_data_parallel(Rig *rig, const Gradient *ddp, size_t batch) {
    Device *devices[RANKS_MAX];
    Error err = {0};
    for (int i = 0; i < rig->world; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", 10 + i);
        devices[i] = device_open(name, &err);
    }
    Module *replicated = test_model("convnet", SEED, devices[0]);
    Module *wrapper = data_parallel(replicated, devices, rig->world, &err);
    CHECK(wrapper, "%s", err.message);
    Tape *tape = tape_create(devices[0], NULL);
    run_backward(tape, rows_loss(tape, wrapper, 0, batch, (double)batch));
    Gradient dp = gradient_of(replicated);
    EXPECT(same_bits(ddp, &dp));
    EXPECT(same_buffers(rig->model, replicated)); // those of chunk 0 and of rank 0

    Module *plain = test_model("convnet", SEED, rig->device);
    Gradient single = alone(rig, plain, 0, batch, (double)batch);
    bool one = rig->world == 1;
    EXPECT(one ? same_bits(ddp, &single) : far(ddp, &single)); // whole-batch statistics
    EXPECT(same_buffers(rig->model, plain) == one);
    free(dp.values);
    free(single.values);
    module_close(plain);
    tape_close(tape);
    module_close(wrapper);
    for (int i = 0; i < rig->world; i++) device_close(devices[i]);
}

static void local_norms(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const NormCase *how = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.global_normalization = !how->average;
    rig_wrap(rig, test_model("convnet", SEED, rig->device), &config);
    size_t begin, end;
    chunk_bounds(how->batch, (size_t)rig->world, (size_t)rig->rank, &begin, &end);
    double divisor = (double)(how->average ? end - begin : how->batch);
    Gradient ddp = reduced(rig, rows_loss(rig->tape, rig->wrapper, begin, end - begin, divisor));
    if (rig->rank == 0) compare_data_parallel(rig, &ddp, how->batch);
    free(ddp.values);
    rig_close(rig);
}

static void dp_and_ddp_with_local_batch_norm(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++)
        for (size_t batch = 7; batch <= 12; batch += 5) // chunks 7; 4, 3; 3, 3, 1; 2, 2, 2, 1
            play_both(world, local_norms, &(NormCase){batch, false}, NULL);
    for (int world = 1; world <= 4; world *= 2) // 1/b is W/B without a rounding
        play_both(world, local_norms, &(NormCase){12, true}, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddp_local_mean),
        cmocka_unit_test(ddp_local_mean_times_w_b_over_b),
        cmocka_unit_test(ddp_local_sum_is_one_w_th),
        cmocka_unit_test(ddp_global_mean),
        cmocka_unit_test(ddp_micro_batches_in_no_sync),
        cmocka_unit_test(ddp_join_by_all_and_by_active_ranks),
        cmocka_unit_test(dp_and_ddp_with_local_batch_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
