/* test_late_batches.c: a step's batch and loss on an asynchronous device that executes nothing
 * before a wait (rigs/late_device.h), as on a GPU: a batch is copied while the previous batch is in
 * use, and a loss is read back one step late. On a CPU both are immediate.
 */
#include "tests/rigs/late_device.h"

#include "common/train/pending_rows.h"

enum { STEPS = 7, CAPACITY = 5, FLOATS = 6, TARGETS = 2 };

static const Dataset NUMBERS = {.count = 100, .shape = {FLOATS, 1, 1}, .target_size = TARGETS};

// ---- batches ------------------------------------------------------------------------------------

typedef struct Use {
    const float *samples, *targets;
    double sum; // of the batch, computed when the device uses it
} Use;

static void use(void *argument) {
    Use *u = argument;
    for (int i = 0; i < CAPACITY * FLOATS; i++) u->sum += (double)u->samples[i];
    for (int i = 0; i < CAPACITY * TARGETS; i++) u->sum += 1000 * (double)u->targets[i];
}

// The loader has one host buffer, which it refills as soon as batch_input_wait returns.
static void a_batch_is_sent_while_another_is_used(void **state) {
    (void)state;
    for (LateCopies copies = LATE_EAGER; copies <= LATE_LAZY; copies++) {
        Device *device = late_open(copies);
        BatchInput *input = batch_input_create(device, &NUMBERS, CAPACITY);
        Batch batch = {.count = CAPACITY, .set = &NUMBERS};
        batch.samples = device_host_alloc(device, CAPACITY * FLOATS * sizeof(float));
        batch.targets = device_host_alloc(device, CAPACITY * TARGETS * sizeof(float));
        Use uses[STEPS] = {0};
        for (int k = 0; k < STEPS; k++) {
            const size_t before = late_of(device)->queued;
            batch_input_wait(input);
            for (int i = 0; i < CAPACITY * FLOATS; i++) batch.samples[i] = (float)(k + 1);
            for (int i = 0; i < CAPACITY * TARGETS; i++) batch.targets[i] = (float)(k + 2);
            batch_input_send(input, &batch);
            const BatchSlot *slot = &input->slots[input->slot];
            if (k > 1) assert_ptr_equal(slot->samples, uses[k - 2].samples);
            if (k > 0) assert_ptr_not_equal(slot->samples, uses[k - 1].samples);
            if (k > 0)
                assert_true(late_of(device)->done < before); // the last batch is still in use
            uses[k] = (Use){.samples = slot->samples, .targets = slot->target};
            late_work(device, use, &uses[k]);
            batch_input_used(input);
        }
        device_synchronize(device);
        for (int k = 0; k < STEPS; k++)
            assert_true(uses[k].sum == CAPACITY * (FLOATS * (k + 1) + 1000 * TARGETS * (k + 2)));
        batch_input_send(input, &batch); // in flight during the close
        batch_input_close(input);
        batch_input_close(NULL);
        device_host_free(device, batch.samples);
        device_host_free(device, batch.targets);
        device_close(device);
    }
}

// The device memory of a batch: one slot on a CPU, two on a device that copies asynchronously.
static void a_cpu_has_one_slot(void **state) {
    (void)state;
    static int64_t labels[1];
    static uint16_t tokens[1];
    static const struct {
        Dataset set;
        size_t bytes; // of a sample with its target
    } cases[] = {
        {{.shape = {FLOATS, 1, 1}, .target_size = TARGETS}, 4 * FLOATS + 4 * TARGETS},
        {{.shape = {3, 8, 4}, .classes = 2, .labels = labels}, 4 * 3 * 8 * 4 + 8},
        {{.shape = {3, 8, 4}, .classes = 2, .labels = labels, .dense = true},
         4 * 3 * 8 * 4 + 8 * 8 * 4},
        {{.shape = {FLOATS, 1, 1}, .classes = 2, .tokens = tokens}, 2 * 8 * FLOATS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int late = 0; late < 2; late++) {
            Error err = {0};
            Device *device = late ? late_open(LATE_LAZY) : device_open("cpu:0", &err);
            const size_t before = device->bytes;
            BatchInput *input = batch_input_create(device, &cases[i].set, CAPACITY);
            assert_int_equal(device->bytes - before, (late ? 2U : 1U) * CAPACITY * cases[i].bytes);
            batch_input_close(input);
            assert_int_equal(device->bytes, before);
            device_close(device);
        }
}

// ---- rows ---------------------------------------------------------------------------------------

// Two processes; the other one's loss is always 3. A started sum completes when it is waited for.
static double *summing; // operand of the sum in flight; NULL: none

static void *begin_sum(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)err;
    assert_int_equal(count, 1); // regression has no hits
    assert_null(summing);
    return summing = values;
}

static int end_sum(Strategy *self, void *sum, Error *err) {
    (void)self, (void)err;
    assert_ptr_equal(sum, summing);
    *summing += self->global_mean ? 3 : 1.5;
    summing = NULL;
    return 0;
}

static bool another_failed;

static int answer(const JobWatch *self, Error *err) {
    (void)self;
    return another_failed ? error_set(err, STATUS_FAILED, "rank 1 is gone") : 0;
}

typedef struct Rig {
    TrainConfig config;
    Device *device;
    Sampler sampler;
    Strategy strategy;
    JobWatch watch;
    Job job;
    Step step;
    Record record;
    PendingRows rows;
    float *loss; // device memory
} Rig;

static void rig_open(Rig *rig, Device *device, bool global_mean, size_t every) {
    *rig = (Rig){.device = device, .sampler = {.world = 2}, .watch = {.check = answer}};
    rig->config = train_config_default();
    rig->config.log_every = every;
    rig->strategy = (Strategy){.device = device,
                               .sampler = &rig->sampler,
                               .global_mean = global_mean,
                               .sum_start = begin_sum,
                               .sum_wait = end_sum};
    rig->job = (Job){.strategy = &rig->strategy, .watch = &rig->watch};
    rig->step = (Step){.config = &rig->config, .strategy = &rig->strategy};
    rig->step.input = batch_input_create(device, &NUMBERS, CAPACITY);
    for (int i = 0; i < LATE_LOSSES; i++) {
        rig->step.losses[i] = readback_create(device, sizeof(float));
        rig->step.late_hits[i] = readback_create(device, 1);
    }
    rig->loss = device_alloc(device, sizeof *rig->loss);
    rig->step.hits = (int64_t *)rig->loss; // only its address is used
    rig->record = record_open(&rig->config, &rig->job, STEPS);
    rig->record.steps = tmpfile();
    assert_non_null(rig->record.steps);
    rig->rows = pending_rows_open(&rig->step, &rig->record, STEPS);
}

static void rig_close(Rig *rig) {
    pending_rows_close(&rig->rows);
    record_close(&rig->record);
    for (int i = 0; i < LATE_LOSSES; i++) {
        readback_close(rig->step.losses[i]);
        readback_close(rig->step.late_hits[i]);
    }
    device_free(rig->device, rig->loss, sizeof *rig->loss);
    batch_input_close(rig->step.input);
    device_close(rig->device);
}

static void set_loss(void *argument) {
    float **pair = argument;
    *pair[0] = *pair[1];
}

// Enqueues step k with loss `value`; returns the result of pending_rows_add.
static int take_step(Rig *rig, int k, float *value, Error *err) {
    static float *pairs[STEPS][2];
    pairs[k][0] = rig->loss, pairs[k][1] = value;
    if (device_is_synchronous(rig->device))
        set_loss(pairs[k]);
    else
        late_work(rig->device, set_loss, pairs[k]);
    step_done(&rig->step, rig->loss);
    pending_rows_wait(&rig->rows);
    if (!device_is_synchronous(rig->device)) { // the last step has completed, this one has not
        const LateDevice *late = late_of(rig->device);
        assert_int_equal(late->queued - late->done, k == 0 ? 3 : 4);
    }
    const StepRecord step = {.step = (uint64_t)k,
                             .epoch = (uint64_t)k + 10,
                             .lr = 0.5,
                             .ns = 2000000,
                             .samples = 8,
                             .scale = 1};
    return pending_rows_add(&rig->rows, &step, &(Profile){0}, err);
}

// Reads steps.csv; stores each row's step and loss and returns the number of rows.
static int read_rows(Rig *rig, int *steps, double *losses) {
    int count = 0, epoch, step;
    char line[400];
    rewind(rig->record.steps);
    for (double rate, loss; fgets(line, sizeof line, rig->record.steps); count++) {
        assert_int_equal(sscanf(line, "%d,%d,%lf,%lf,", &step, &epoch, &rate, &loss), 4);
        assert_int_equal(epoch, 10 + step);
        assert_true(rate == 0.5);
        steps[count] = step, losses[count] = loss;
    }
    fseek(rig->record.steps, 0, SEEK_END);
    return count;
}

// With --log-every 3, steps 0, 3 and 6 are logged. A row is written one step after its loss is read
// back.
static void check_rows(bool late, bool global, int every) { // every: of --log-every
    Error err = {0};
    Rig rig;
    float values[STEPS];
    double losses[STEPS];
    int steps[STEPS];
    const int rows = (STEPS + every - 1) / every;
    rig_open(&rig, late ? late_open(LATE_EAGER) : device_open("cpu:0", &err), global,
             (size_t)every);
    for (int k = 0; k < STEPS; k++) {
        values[k] = (float)(k + 1);
        CHECK_OK(take_step(&rig, k, &values[k], &err) == 0, err);
        // Step k reads back the loss of step k - 1 (on a CPU: k) and starts its sum if that step is
        // logged.
        const int read = late ? k - 1 : k;
        assert_int_equal(summing != NULL, read >= 0 && read % every == 0);
        assert_int_equal(read_rows(&rig, steps, losses), read < 1 ? 0 : (read + every - 1) / every);
    }
    CHECK_OK(pending_rows_settle(&rig.rows, &err) == 0, err);
    assert_null(summing);
    assert_int_equal(read_rows(&rig, steps, losses), rows);
    for (int i = 0; i < rows; i++) {
        const int own = every * i + 1;
        assert_int_equal(steps[i], every * i);
        assert_true(losses[i] == (global ? own + 3 : own / 2.0 + 1.5));
    }
    assert_true(rig.record.final_loss == losses[rows - 1]);
    CHECK_OK(pending_rows_settle(&rig.rows, &err) == 0, err); // no row is pending
    assert_int_equal(read_rows(&rig, steps, losses), rows);
    rig_close(&rig);
}

static void rows_come_with_their_own_loss(void **state) {
    (void)state;
    for (int way = 0; way < 8; way++) check_rows(way % 2, way / 2 % 2, way < 4 ? 1 : 3);
}

// The error names the step of the NaN loss, even between logged steps. If another process has
// failed, its error is reported instead.
static void a_loss_that_is_no_number_ends_its_run(void **state) {
    (void)state;
    for (int way = 0; way < 12; way++) {
        const int late = way % 2, bad = 1 + way / 4;
        const bool gone = way / 2 % 2;
        Error err = {0};
        Rig rig;
        float values[STEPS];
        char words[80] = "rank 1 is gone";
        rig_open(&rig, late ? late_open(LATE_LAZY) : device_open("cpu:0", &err), true, 3);
        for (int k = 0; k <= bad + late; k++) {
            values[k] = k == bad ? NAN : 1;
            another_failed = gone && k == bad + late;
            int failed = take_step(&rig, k, &values[k], &err);
            assert_int_equal(failed, k == bad + late ? -1 : 0);
        }
        if (!gone)
            snprintf(words, sizeof words, "at step %d (epoch %d, lr 0.5): training has diverged",
                     bad, bad + 10);
        check_message(&err, words);
        assert_int_equal(err.status, STATUS_FAILED);
        another_failed = false;
        Error lost = {0};
        CHECK_OK(pending_rows_finish(&rig.rows, &lost) == 0, lost);
        rig_close(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_sent_while_another_is_used),
        cmocka_unit_test(a_cpu_has_one_slot),
        cmocka_unit_test(rows_come_with_their_own_loss),
        cmocka_unit_test(a_loss_that_is_no_number_ends_its_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
