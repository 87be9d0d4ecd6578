/* own_fsdp_rig.c: judges one property of a fully sharded data parallel of a student's own, on a
 * model made for it (own_fsdp_judge.h).
 *
 *     ddprun --nproc-per-node 3 tutorial_capstone_fsdp CHECK FILE
 *
 * A rank that detects a mistake prints "MISS " and a sentence, and the job ends with status 1.
 */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/device/link.h"
#include "common/nn/ops.h"
#include "common/own/own_file.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/capstones/own_fsdp_judge.h"
#include "tutorials/capstones/rig.h"

static const float RATE = 0.02f;                      // so low that no weight becomes infinite
static const float OLD = 64;                          // in a shard's gradient before a step
static const LinkSpeed SLOW = {.bytes_per_s = 3.5e6}; // a block's gather on 2 ranks takes 4 ms

static double ms_since(uint64_t begin) {
    return (double)(clock_ns() - begin) / 1e6;
}

// ---- opening and closing ------------------------------------------------------------------------

static void fill(int rank, const NamedTensors *tensors) {
    for (size_t t = 0; t < tensors->count; t++) {
        float *values = tensors->items[t].tensor->data;
        for (size_t i = 0; i < tensor_count(tensors->items[t].tensor); i++)
            values[i] = judged_number(rank, t, i);
    }
}

// Runs the model; records if `backward`. 0, or -1 with err filled.
static int run(Module *model, int step, bool backward, Error *err) {
    float x[ROWS * WIDTH], target[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = 0.05f * (float)((i * 13 + step * 5 + rig.rank * 3) % 17);
        target[i] = 0.5f * (float)((i + step) % 3) - 0.2f;
    }
    Tape *tape = rig.tape;
    tape_reset(tape);
    tape->recording = tape->training = backward;
    const size_t shape[] = {ROWS, WIDTH};
    Tensor *y = module_forward(model, tape, tape_input(tape, DTYPE_F32, 2, shape, x));
    Tensor *loss = op_squared_error(tape, y, tape_input(tape, DTYPE_F32, 2, shape, target), ROWS);
    return backward ? tape_backward(tape, loss, err) : tape_error(tape, err);
}

static void rig_open(void) {
    Error err = {0};
    rig.step = 0;
    rig.twin = judged_model();
    rig.twins = module_tensors(rig.twin, MODULE_PARAMETERS);
    fill(0, &rig.twins);
    rig.tape = tape_create(rig.device, NULL);
    must_do(run(rig.twin, 0, true, &err), &err); // from now on the tape allocates nothing
    rig.memory = (Memory){.device = rig.device->bytes};
    rig.model = judged_model();
    rig.memory.host = host_bytes();
    rig.tensors = module_tensors(rig.model, MODULE_PARAMETERS);
    fill(rig.rank, &rig.tensors);
    rig.units = must_get(
        own_units_open(rig.model, rig.model->children + 1, BLOCKS, &JUDGE, rig.group, rig.op, &err),
        &err);
}

static void rig_close(void) {
    const size_t device = rig.memory.device;
    own_units_close(rig.units);
    for (size_t t = 0; t < rig.tensors.count; t++)
        if (rig.tensors.items[t].tensor->data || rig.tensors.items[t].tensor->grad)
            miss(
                "After close, data or grad of %s is not NULL: it points into memory that is freed.",
                rig.tensors.items[t].name);
    module_close(rig.model);
    if (rig.device->bytes > device)
        miss("After close, %zu bytes of device_alloc are not freed.", rig.device->bytes - device);
    for (size_t t = 0; t < rig.tensors.count; t++) {
        free(rig.kept[t]);
        rig.kept[t] = NULL;
    }
    named_tensors_free(&rig.tensors);
    named_tensors_free(&rig.twins);
    tape_close(rig.tape);
    module_close(rig.twin);
}

// ---- a step -------------------------------------------------------------------------------------

static const char *cause_of(const float *all, size_t count, size_t i, float sum, float found) {
    const float mean = sum * (1.0f / (float)rig.size), own = all[(size_t)rig.rank * count + i];
    if (isnan(found)) return "nothing has arrived there, or padding was added to it";
    if (found == OLD + (rig.op == PG_AVG ? mean : sum))
        return "added to what the shard's gradient held before the step";
    if (found == own) return "this rank's own, which was not reduced";
    if (rig.op == PG_AVG && found == sum) return "the sum, and op is PG_AVG";
    if (rig.op == PG_SUM && found == mean) return "the mean, and op is PG_SUM";
    if (found == all[i]) return "rank 0's alone";
    if (rig.op == PG_AVG && fabsf(found - mean / (float)rig.size) <= 1e-6f * fabsf(found))
        return "divided by the ranks twice";
    if (rig.op == PG_AVG && fabsf(found - mean) <= 1e-5f * fabsf(mean))
        return "other last bits: added in another order, divided elsewhere, or in two parts";
    for (size_t j = 0; j < count; j++) {
        float other = 0;
        for (int r = 0; r < rig.size; r++) other += all[(size_t)r * count + j];
        if (j != i && found == (rig.op == PG_AVG ? other * (1.0f / (float)rig.size) : other))
            return "that of another row";
    }
    return "no number that a reduction of these gradients gives";
}

// Compares a shard's gradient with that of all ranks' twins, and updates both weights.
static void check_gradient(size_t t) {
    Error err = {0};
    Tensor *tensor = rig.tensors.items[t].tensor, *twin = rig.twins.items[t].tensor;
    const char *name = rig.tensors.items[t].name;
    const Rows rows = rows_of(twin);
    const size_t count = tensor_count(twin), first = rows.first * rows.length;
    if (tensor->has_grad != twin->has_grad)
        miss("After finish_backward in step %d, has_grad of %s is %s on rank %d: %s.", rig.step,
             name, tensor->has_grad ? "set" : "not set", rig.rank,
             twin->has_grad ? "its gradient was not reduced" : "it has no gradient in this step");
    if (!twin->has_grad) return;
    float *all = memory_zalloc((size_t)rig.size * count * sizeof *all);
    must_do(pg_run(rig.apart, pg_all_gather(twin->grad, all, count, PG_F32), &err), &err);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < rig.size; r++) sum += all[(size_t)r * count + i];
        const float wanted = rig.op == PG_AVG ? sum * (1.0f / (float)rig.size) : sum;
        CHECK(isfinite(wanted), "a gradient of the judge's model is %g in step %d", (double)wanted,
              rig.step);
        ((float *)twin->data)[i] -= RATE * wanted;
        if (i < first || i >= first + rows.count * rows.length) continue;
        const float found = tensor->grad[i - first];
        if (memcmp(&found, &wanted, sizeof found) != 0)
            miss("In step %d, the gradient of %s on rank %d of %d is %.8g at [%zu] of its shard, "
                 "expected %.8g: %s.",
                 rig.step, name, rig.rank, rig.size, (double)found, i - first, (double)wanted,
                 cause_of(all, count, i, sum, found));
        ((float *)tensor->data)[i - first] -= RATE * found;
    }
    free(all);
}

static void rig_step(void) {
    Error err = {0};
    memset(rig.spent, 0, sizeof rig.spent);
    module_zero_grad(rig.model);
    module_zero_grad(rig.twin);
    for (size_t t = 0; t < rig.tensors.count; t++) {
        const Tensor *tensor = rig.tensors.items[t].tensor;
        for (size_t i = 0; tensor->grad && i < tensor_count(tensor); i++) tensor->grad[i] = OLD;
    }
    const uint64_t begin = clock_ns();
    for (int part = 0; part < rig.parts; part++) {
        own_units_hold_gradients(rig.units, part + 1 < rig.parts);
        must("backward", run(rig.model, rig.step + part, true, &err), &err);
    }
    must("finish_backward", own_units_finish(rig.units, &err), &err);
    rig.step_ms = ms_since(begin);
    const bool sleeps = rig.sleeps;
    rig.sleeps = false;
    for (int part = 0; part < rig.parts; part++)
        must_do(run(rig.twin, rig.step + part, true, &err), &err);
    rig.sleeps = sleeps;
    for (size_t t = 0; t < rig.tensors.count; t++) check_gradient(t);
    rig.step++;
}

static void run_steps(void) {
    rig_open();
    for (int step = 0; step < STEPS; step++) rig_step();
    rig_close();
}

// ---- the checks ---------------------------------------------------------------------------------

static void check_open(void) {
    rig_open();
    rig_close();
}

static void check_forward(void) {
    Error err = {0};
    rig_open();
    for (int i = 0; i < STEPS; i++) must("forward", run(rig.model, i, false, &err), &err);
    rig_close();
}

static void check_backward(void) {
    run_steps();
    rig.op = PG_SUM;
    run_steps();
}

static void check_frozen(void) {
    rig.frozen = true;
    run_steps();
}

static void check_unused(void) {
    rig.unused = true;
    run_steps();
}

static void check_twice(void) {
    rig.twice = true;
    run_steps();
    rig.tied = true;
    run_steps();
}

// Steps and evaluations in turns, within the limit.
static void check_bytes(void) {
    Error err = {0};
    size_t shards = 0;
    rig_open();
    const size_t root = padded_bytes(&rig.listed[BLOCKS], (size_t)rig.size);
    for (size_t u = 0; u < rig.count; u++) {
        const size_t bytes = padded_bytes(&rig.listed[u], (size_t)rig.size);
        if (u < BLOCKS && bytes > rig.memory.unit) rig.memory.unit = bytes;
        shards += padded_bytes(&rig.listed[u], 1);
    }
    const size_t rounding = rig.tensors.count * 2 * 64 + 8 * 4096; // lines and pages
    rig.memory.limit = 2 * shards + 2 * root + 4 * rig.memory.unit + rounding;
    device_reset_peak(rig.device);
    for (int step = 0; step < STEPS; step++) {
        must("forward", run(rig.model, step, false, &err), &err);
        rig_step();
    }
    rig_close();
}

// Moves the unit's parameters once, in collectives of the rig's own, and returns the bytes.
static uint64_t bytes_of(size_t u, bool reduce) {
    Error err = {0};
    const uint64_t before = pg_moved_bytes(rig.apart);
    const size_t bytes = padded_bytes(&rig.listed[u], (size_t)rig.size);
    const size_t count = bytes / sizeof(float) / (size_t)rig.size;
    float *memory = memory_zalloc(bytes);
    must_do(pg_run(rig.apart,
                   reduce ? pg_reduce_scatter(memory, memory + count * (size_t)rig.rank, count,
                                              PG_F32, PG_SUM)
                          : pg_all_gather(memory + count * (size_t)rig.rank, memory, count, PG_F32),
                   &err),
            &err);
    free(memory);
    return pg_moved_bytes(rig.apart) - before;
}

// Bytes that a step moves and the least that it can move.
typedef struct Traffic {
    double moved, least, reductions;
} Traffic;

static Traffic measure_traffic(void) {
    uint64_t gathers = 0, reductions = 0;
    for (size_t u = 0; u < rig.count; u++) {
        gathers += (u < BLOCKS ? 2 : 1) * (uint64_t)rig.parts * bytes_of(u, false);
        reductions += bytes_of(u, true);
    }
    rig_step();
    rig_step();
    const uint64_t before = pg_moved_bytes(rig.group);
    rig_step();
    return (Traffic){(double)(pg_moved_bytes(rig.group) - before), (double)(gathers + reductions),
                     (double)reductions};
}

static void check_traffic(void) {
    rig_open();
    const Traffic of = measure_traffic();
    if (of.moved > 1.05 * of.least)
        miss("A step of rank %d moved %.0f bytes, %.2f times what gathering each unit twice (the "
             "root once) and reducing it once takes: are rows sent that their receiver drops?",
             rig.rank, of.moved, of.moved / of.least);
    if (rig.rank == 0) printf("SPEED %.2f\n", of.moved / (2 * of.reductions));
    rig_close();
}

// A step of several backwards, as with --accumulate-steps.
static void check_accumulated(void) {
    rig.parts = 3;
    run_steps();
    rig_open();
    const Traffic of = measure_traffic();
    if (of.moved > 1.05 * of.least)
        miss("A step of %d backwards of rank %d moved %.0f bytes, %.2f times what gathering each "
             "unit twice in each (the root once) and reducing it once takes: gradients are reduced "
             "only if `complete`.",
             rig.parts, rig.rank, of.moved, of.moved / of.least);
    rig_close();
}

static void check_close(void) {
    rig_open();
    rig_step();
    rig_close();
    run_steps(); // once more in the same process
}

// The last rank fails in its second step; the others' functions must return the group's error.
static void check_lost(void) {
    Error err = {0};
    rig_open();
    rig_step();
    if (rig.rank == rig.size - 1) {
        error_set(&err, STATUS_FAILED, "rank %d is lost", rig.rank);
        (void)pg_abort(rig.group, &err);
        (void)pg_run(rig.apart, pg_barrier(), &(Error){0}); // the others have the error
        return;
    }
    rig.may_fail = true;
    int status = run(rig.model, 1, true, &err);
    if (status == 0) status = own_units_finish(rig.units, &err);
    if (status == 0)
        miss("Rank %d was lost, and on rank %d no function returned -1: the error of pg_run, "
             "pg_start or pg_work_wait was not returned.",
             rig.size - 1, rig.rank);
    if (!strstr(err.message, "is lost"))
        miss("The error after a lost rank is \"%s\": return -1 with the err that pg_run, pg_start "
             "or pg_work_wait has filled.",
             err.message);
    rig.file->close(rig.self);
    (void)pg_run(rig.apart, pg_barrier(), &(Error){0});
}

// Milliseconds of one collective for each unit over the link: the shortest of STEPS.
static double link_ms(void) {
    double best = 1e9;
    for (int i = 0; i < STEPS; i++) {
        const uint64_t begin = clock_ns();
        for (size_t u = 0; u < rig.count; u++) (void)bytes_of(u, false);
        best = fmin(best, ms_since(begin));
    }
    return best;
}

// Keeps each unit's shortest wait, because a busy machine delays some units of every step. Returns
// the sums.
static Spent add_best(Spent best[BLOCKS + 2]) {
    Spent sum = {0};
    for (size_t u = 0; u <= rig.count; u++) {
        best[u].forward = fmin(best[u].forward, rig.spent[u].forward);
        best[u].backward = fmin(best[u].backward, rig.spent[u].backward);
        best[u].reduce = fmin(best[u].reduce, rig.spent[u].reduce);
        sum.forward += best[u].forward;
        sum.backward += best[u].backward;
        sum.reduce += best[u].reduce;
    }
    return sum;
}

// times: the time of a step without computation, divided by one collective per unit.
static void check_share(const char *where, double ms, double all, double times,
                        const char *advice) {
    char slow[160] = "";
    if (ms <= 0.5 * all) return;
    if (times > 1.5)
        snprintf(slow, sizeof slow,
                 "; your collectives alone take %.1f times as long as one pg_all_gather or "
                 "pg_reduce_scatter of each unit",
                 times);
    miss("Over a slow link, %.0f %% of %s are waited for while nothing computes: %s%s.",
         100 * ms / all, where, advice, slow);
}

// Uses a link on which a unit's collective takes a third of its computation.
static void check_overlap(void) {
    Spent best[BLOCKS + 2], sum = {0};
    double step_ms = 1e9;
    for (size_t u = 0; u < BLOCKS + 2; u++) best[u] = (Spent){1e9, 1e9, 1e9};
    rig_open();
    const double all = link_ms();
    for (int step = 0; step < STEPS; step++) {
        rig_step();
        step_ms = fmin(step_ms, rig.step_ms);
    }
    const double times = step_ms / (3 * all);
    rig.sleeps = true;
    for (int step = 0; step < 8; step++) {
        rig_step();
        sum = add_best(best);
    }
    check_share("the gathers of forward", sum.forward, all, times,
                "start the next unit's gather before this unit computes, by pg_start");
    check_share("the gathers of backward", sum.backward, all, times,
                "start the gather of the unit before, in the reverse order of forward, before this "
                "unit computes");
    check_share("the reductions", sum.reduce, all, times,
                "start a unit's reduction in after_backward, and wait for it while the next unit "
                "computes");
    if (rig.rank == 0)
        printf("SPEED %.0f\n", 100 * (sum.forward + sum.backward + sum.reduce) / (3 * all));
    rig_close();
}

static const struct {
    const char *name;
    void (*run)(void);
} CHECKS[] = {
    {"open", check_open},     {"forward", check_forward}, {"backward", check_backward},
    {"frozen", check_frozen}, {"unused", check_unused},   {"twice", check_twice},
    {"memory", check_bytes},  {"traffic", check_traffic}, {"accumulated", check_accumulated},
    {"close", check_close},   {"lost", check_lost},       {"overlap", check_overlap},
};

int main(int argc, char **argv) {
    Error err = {0};
    char *word = rig_take_word();
    Rendezvous me;
    if (argc != 3) {
        fprintf(stderr, "usage: tutorial_capstone_fsdp CHECK FILE\n");
        return STATUS_USAGE;
    }
    rig.file = own_file_load(argv[2], "own_fsdp", OWN_FSDP_VERSION, sizeof *rig.file, &err);
    if (!rig.file) miss("%s", err.message);
    must_do(init_from_env(&me, true, &err), &err);
    rig.device = must_get(device_open("cpu:0", &err), &err);
    rig.group = must_get(init_process_group("shm", &me, rig.device, 5, &err), &err);
    if (strcmp(argv[1], "overlap") == 0) pg_emulate_link(rig.group, link_create(SLOW));
    rig.apart = must_get(pg_split(rig.group, 0, &err), &err);
    rig.rank = me.rank;
    rig.size = me.world_size;
    for (size_t i = 0; i < sizeof CHECKS / sizeof *CHECKS; i++) {
        if (strcmp(CHECKS[i].name, argv[1]) != 0) continue;
        CHECKS[i].run();
        rig_end(word, rig.rank);
        return STATUS_OK;
    }
    fprintf(stderr, "there is no check %s\n", argv[1]);
    return STATUS_USAGE;
}
