/* own_ddp_rig.c: judges one property of a DistributedDataParallel of a student's own, on a model
 * made for it: the expected result is computed here, from every rank's own gradients.
 *
 *     ddprun --nproc-per-node 3 tutorial_capstone_ddp CHECK FILE
 *
 * A rank that detects a mistake prints "MISS " and a sentence, and the job ends with status 1.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/nn/layers.h"
#include "common/nn/tape.h"
#include "common/own/own_file.h"
#include "ddp/own/own_ddp.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/capstones/rig.h"

enum { ROWS = 3, WIDTH = 4, STEPS = 3, LONG = 300 };

// Where the parameter that no loss depends on is registered: in the first bucket, or in the last.
typedef enum Unused { NONE_UNUSED, IN_FIRST_BUCKET, IN_LAST_BUCKET } Unused;

typedef struct Rig {
    Device *device;
    ProcessGroup *group; // the student's
    ProcessGroup *apart; // the same ranks, for the rig alone
    int rank, size;
    const OwnDdp *file;
    void *self;
    Module *model, *twin; // the twin is not wrapped: its gradients are this rank's own
    NamedTensors tensors, twins;
    Tape *tape;
    bool frozen, tied, turned; // the model's kind; turned: by an odd rank, another order
    Unused unused;
    bool overflows; // the last rank's gradients are infinite and NaN
    ReduceOp op;
    int parts;           // backwards of a step
    uint64_t reductions; // collectives of the last step's backward and finish_backward
} Rig;

static bool on_root; // this is rank 0

// Delayed on rank 0: the job reports another rank's sentence, which names rank 0's gradient so.
__attribute__((noreturn, format(printf, 1, 2))) static void miss(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char sentence[800];
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (on_root) usleep(200000);
    printf("MISS %s\n", sentence);
    process_end(STATUS_FAILED);
}

// Misses after an error of the student's function.
static void must(const char *function, int status, const Error *err) {
    if (status == 0) return;
    miss("%s failed: %s", function, err->message[0] ? err->message : "and did not say why");
}

// ---- the model ----------------------------------------------------------------------------------

// Two branches, added; a turned model runs the second first. The buffers, floats and an integer,
// grow by different numbers on each rank.
static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    const bool turned = self->config[0] != 0;
    float *seen = self->buffers[0].tensor.data;
    for (int i = 0; i < WIDTH && tape->training; i++) seen[i] += (float)self->config[1];
    int64_t *calls = self->buffers[1].tensor.data;
    if (tape->training) *calls += (int64_t)self->config[1];
    Tensor *y = module_forward(module_child(self, "a"), tape, x);
    Tensor *left = turned ? NULL : module_forward(module_child(self, "b"), tape, y);
    Tensor *right = module_forward(module_child(self, "c"), tape, y);
    if (turned) left = module_forward(module_child(self, "b"), tape, y);
    return module_forward(module_child(self, "d"), tape, op_add(tape, left, right));
}

static Module *build(const Rig *rig) {
    static const char *const names[] = {"a", "b", "c", "d"};
    Module *model = module_create("Judged", forward);
    model->config[0] = rig->turned && rig->rank % 2 == 1;
    model->config[1] = (size_t)rig->rank + 1;
    module_add_buffer(model, rig->device, "seen", DTYPE_F32, 1, (size_t[]){WIDTH});
    module_add_buffer(model, rig->device, "calls", DTYPE_I64, 0, NULL);
    if (rig->unused == IN_LAST_BUCKET)
        module_add(model, "never_used", layer_linear(rig->device, 7, 3));
    for (int i = 0; i < 4; i++)
        module_add(model, names[i], layer_linear_relu(rig->device, WIDTH, WIDTH));
    if (rig->unused == IN_FIRST_BUCKET)
        module_add(model, "never_used", layer_linear(rig->device, 7, 3));
    if (rig->tied)
        module_tie_parameter(module_child(model, "c"), "weight", module_child(model, "b"),
                             "weight");
    if (rig->frozen) module_parameter(module_child(model, "a"), 0)->requires_grad = false;
    if (rig->frozen) module_parameter(module_child(model, "d"), 1)->requires_grad = false;
    return model;
}

// Numbers that differ by rank, tensor and index, and whose sums round.
static float number_of(int rank, size_t tensor, size_t i) {
    return 0.1f + 0.37f * (float)rank + 0.011f * (float)((tensor * 31 + i * 7) % 41);
}

static void fill(const Rig *rig, int rank, const NamedTensors *tensors) {
    (void)rig;
    for (size_t t = 0; t < tensors->count; t++) {
        const Tensor *tensor = tensors->items[t].tensor;
        for (size_t i = 0; i < tensor_count(tensor); i++)
            if (tensor->dtype == DTYPE_I64)
                ((int64_t *)tensor->data)[i] = 100 * ((int64_t)rank + 1);
            else
                tensor_f32(tensor)[i] = number_of(rank, t, i);
    }
}

static double first_of(const Tensor *tensor, const void *values) {
    return tensor->dtype == DTYPE_I64 ? (double)*(const int64_t *)values
                                      : (double)*(const float *)values;
}

// ---- open and close -----------------------------------------------------------------------------

static void check_state(const Rig *rig, const char *after, int which) {
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor;
        const void *root = rig->twins.items[t].tensor->data;
        const bool buffer = !strchr(rig->tensors.items[t].name, '.');
        if (!(which & (buffer ? MODULE_BUFFERS : MODULE_PARAMETERS))) continue;
        if (memcmp(tensor->data, root, tensor_bytes(tensor)) == 0) continue;
        miss(
            "After %s, rank %d's %s%s begins with %g, and rank 0's with %g: every rank starts from "
            "rank 0's parameters and buffers.",
            after, rig->rank, rig->tensors.items[t].name,
            buffer                   ? " (a buffer)"
            : !tensor->requires_grad ? " (frozen, but a parameter)"
                                     : "",
            first_of(tensor, tensor->data), first_of(tensor, root));
    }
}

static void rig_open(Rig *rig, size_t bucket_bytes) {
    Error err = {0};
    rig->model = build(rig);
    rig->twin = build(rig);
    rig->tensors = module_tensors(rig->model, MODULE_STATE);
    rig->twins = module_tensors(rig->twin, MODULE_STATE);
    fill(rig, rig->rank, &rig->tensors);
    fill(rig, 0, &rig->twins);
    rig->tape = tape_create(rig->device, NULL);
    rig->self = rig->file->open(rig->model, rig->group, rig->op, bucket_bytes, &err);
    must("open", rig->self ? 0 : -1, &err);
    check_state(rig, "open", MODULE_STATE);
}

static void rig_close(Rig *rig) {
    rig->file->close(rig->self);
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor;
        if (tensor->on_ready)
            miss("After close, %s still has its on_ready: the next backward calls into memory that "
                 "is freed.",
                 rig->tensors.items[t].name);
        if (tensor->requires_grad && !tensor->grad)
            miss("After close, %s has no memory for its gradient: module_own_grads gives it back.",
                 rig->tensors.items[t].name);
    }
    named_tensors_free(&rig->tensors);
    named_tensors_free(&rig->twins);
    tape_close(rig->tape);
    module_close(rig->model);
    module_close(rig->twin);
}

// ---- a backward ---------------------------------------------------------------------------------

static int backward(Rig *rig, Module *model, int step, Error *err) {
    float x[ROWS * WIDTH], target[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = 0.05f * (float)((i * 13 + step * 5 + rig->rank * 3) % 17);
        target[i] = 0.5f * (float)((i + step) % 3) - 0.2f;
        if (rig->overflows && rig->rank == rig->size - 1) target[i] = INFINITY;
    }
    Tape *tape = rig->tape;
    tape_reset(tape);
    tape->recording = tape->training = true;
    const size_t shape[] = {ROWS, WIDTH};
    Tensor *y = module_forward(model, tape, tape_input(tape, DTYPE_F32, 2, shape, x));
    Tensor *loss = op_squared_error(tape, y, tape_input(tape, DTYPE_F32, 2, shape, target), ROWS);
    return tape_backward(tape, loss, err);
}

// The expected gradient i of this tensor after the reduction, and the values of common mistakes.
typedef struct Expected {
    float wanted, sum, own, root, mean_twice;
} Expected;

static Expected expect(const Rig *rig, const float *all, size_t count, size_t i) {
    Expected e = {.own = all[(size_t)rig->rank * count + i], .root = all[i]};
    for (int r = 0; r < rig->size; r++) e.sum += all[(size_t)r * count + i];
    const float mean = e.sum * (1.0f / (float)rig->size);
    e.wanted = rig->op == PG_AVG ? mean : e.sum;
    if (isnan(e.wanted)) e.wanted = NAN; // printed without a sign
    e.mean_twice = e.wanted * (1.0f / (float)rig->size);
    return e;
}

static const char *cause_of(const Rig *rig, const Expected *e, float found) {
    if (!isfinite(e->wanted))
        return "infinity and NaN are sent as any number. The loss scale of fp16 is halved when "
               "they are found";
    if (found == 0) return "nothing has arrived there";
    if (found == e->own) return "this rank's own, which was not reduced";
    if (rig->op == PG_AVG && found == e->sum) return "the sum, and op is PG_AVG";
    if (rig->op == PG_SUM && found == e->sum * (1.0f / (float)rig->size))
        return "the mean, and op is PG_SUM";
    if (found == e->root) return "rank 0's alone";
    if (fabsf(found - e->mean_twice) <= 1e-6f * fabsf(found)) return "divided by the ranks twice";
    if (fabsf(found - e->wanted) <= 1e-5f * fabsf(e->wanted))
        return "other last bits, so it was added in another order or divided elsewhere";
    if (rig->parts > 1)
        return "no sum over these backwards. Was one reduced whose `reduces` is false, or one left "
               "out?";
    return "no number that a reduction of these gradients gives";
}

// Compares the model's gradients with the twins' of all ranks.
static void check_gradients(const Rig *rig, int step) {
    Error err = {0};
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor, *twin = rig->twins.items[t].tensor;
        const char *name = rig->tensors.items[t].name;
        const size_t count = tensor_count(tensor);
        if (tensor->requires_grad != twin->requires_grad)
            miss("In step %d, requires_grad of %s is %d, and was %d: which parameters are trained "
                 "is the trainer's choice.",
                 step, name, tensor->requires_grad, twin->requires_grad);
        if (!twin->requires_grad || !twin->has_grad) continue;
        float *all = memory_zalloc((size_t)rig->size * count * sizeof *all);
        must_do(pg_run(rig->apart, pg_all_gather(twin->grad, all, count, PG_F32), &err), &err);
        if (!tensor->has_grad) miss("In step %d, %s has no gradient (has_grad).", step, name);
        for (size_t i = 0; i < count; i++) {
            Expected e = expect(rig, all, count, i);
            if (memcmp(&tensor->grad[i], &e.wanted, sizeof e.wanted) == 0) continue;
            if (isnan(tensor->grad[i]) && isnan(e.wanted)) continue;
            miss(
                "In step %d, the gradient of %s [%zu] is %.8g on rank %d of %d, expected %.8g: %s.",
                step, name, i, (double)tensor->grad[i], rig->rank, rig->size, (double)e.wanted,
                cause_of(rig, &e, tensor->grad[i]));
        }
        free(all);
    }
}

// The model and its twin after a backward that is not reduced: equal.
static void check_held(const Rig *rig, int part) {
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor, *twin = rig->twins.items[t].tensor;
        if (!twin->has_grad) continue;
        if (tensor->has_grad && !memcmp(tensor->grad, twin->grad, tensor_bytes(tensor))) continue;
        miss("After backward %d of an accumulation, %s has other gradients than this rank's own: "
             "where `reduces` is false, they only add up.",
             part, rig->tensors.items[t].name);
    }
}

// `parts` backwards, of which the last is reduced.
static void rig_step(Rig *rig, int step, int parts, bool checked) {
    Error err = {0};
    rig->parts = parts;
    module_zero_grad(rig->model);
    module_zero_grad(rig->twin);
    for (int part = 0; part < parts; part++) {
        const bool reduces = part == parts - 1;
        must("before_forward", rig->file->before_forward(rig->self, reduces, &err), &err);
        rig->reductions = pg_sequence(rig->group);
        must("backward", backward(rig, rig->model, step * 10 + part, &err), &err);
        if (checked) must_do(backward(rig, rig->twin, step * 10 + part, &err), &err);
        if (!reduces) check_held(rig, part);
    }
    must("finish_backward", rig->file->finish_backward(rig->self, &err), &err);
    rig->reductions = pg_sequence(rig->group) - rig->reductions;
    if (checked) check_gradients(rig, step);
}

// A bucket is full as soon as it has bucket_bytes, so it exceeds them by less than its last
// gradient. (Sends and receives are not counted: a file that uses nothing else has no reductions.)
static void check_buckets(const Rig *rig, size_t bucket_bytes) {
    size_t total = 0, largest = 0;
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor;
        if (!tensor->requires_grad) continue;
        total += tensor_bytes(tensor);
        if (tensor_bytes(tensor) > largest) largest = tensor_bytes(tensor);
    }
    const size_t most = bucket_bytes ? bucket_bytes + largest - sizeof(float) : largest;
    const size_t least = (total + most - 1) / most;
    if (rig->reductions == 0 || rig->reductions >= least) return;
    miss("With bucket_bytes %zu, %zu bytes of gradients travelled in %d collectives, and need at "
         "least %zu: a bucket takes gradients until it has at least bucket_bytes.",
         bucket_bytes, total, (int)rig->reductions, least);
}

static void run_steps(Rig *rig, size_t bucket_bytes, int parts) {
    rig_open(rig, bucket_bytes);
    for (int step = 0; step < STEPS; step++) rig_step(rig, step, parts, true);
    check_buckets(rig, bucket_bytes);
    rig->overflows = true;
    rig_step(rig, STEPS, parts, true);
    rig->overflows = false;
    rig_step(rig, STEPS + 1, parts, true);
    rig_close(rig);
}

// ---- the checks ---------------------------------------------------------------------------------

static void check_open(Rig *rig) {
    rig_open(rig, 1 << 20);
    rig_close(rig);
}

// More steps than a fixed-size table or a small counter can hold. The last steps are checked.
static void run_long(Rig *rig) {
    rig_open(rig, 1 << 20);
    for (int step = 0; step < LONG; step++) rig_step(rig, step, 1, step >= LONG - STEPS);
    rig_close(rig);
}

static void check_mean(Rig *rig) {
    const size_t sizes[] = {1 << 20, 0, 100, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        rig->op = i == 2 ? PG_SUM : PG_AVG;
        run_steps(rig, sizes[i], 1);
    }
    if (rig->size == 2) run_long(rig);
}

static void check_accumulation(Rig *rig) {
    run_steps(rig, 100, 3);
    run_steps(rig, 1 << 20, 2);
}

static void check_order(Rig *rig) {
    rig->turned = true;
    run_steps(rig, 0, 1);
    run_steps(rig, 100, 1);
}

static void check_frozen(Rig *rig) {
    rig->frozen = true;
    run_steps(rig, 0, 1);
    run_steps(rig, 1 << 20, 2);
}

static void check_tied(Rig *rig) {
    rig->tied = true;
    run_steps(rig, 0, 1);
    run_steps(rig, 100, 2);
}

// finish_backward must name a parameter that the loss does not depend on, on every rank. If it is
// in the last bucket, close is called while the first buckets are in flight.
static void run_unused(Rig *rig, Unused unused) {
    Error err = {0};
    rig->unused = unused;
    rig_open(rig, 100);
    must("before_forward", rig->file->before_forward(rig->self, true, &err), &err);
    must("backward", backward(rig, rig->model, 0, &err), &err);
    if (rig->file->finish_backward(rig->self, &err) == 0)
        miss("never_used.weight got no gradient in this backward, and finish_backward returned 0: "
             "the ranks would wait for each other, or reduce old numbers.");
    if (!strstr(err.message, "never_used"))
        miss("finish_backward's error does not name never_used.weight, which got no gradient: %s",
             err.message[0] ? err.message : "it is empty");
    rig_close(rig);
}

static void check_unused(Rig *rig) {
    run_unused(rig, IN_FIRST_BUCKET);
    run_unused(rig, IN_LAST_BUCKET);
}

typedef struct Buffers {
    float seen[WIDTH];
    int64_t calls;
} Buffers;

// Compared with rank 0's buffers: the ranks' mean, or another rank's, would be equal on all, too.
static Buffers take_buffers(const Rig *rig) {
    Error err = {0};
    Buffers root = {.calls = *(int64_t *)rig->model->buffers[1].tensor.data};
    memcpy(root.seen, rig->model->buffers[0].tensor.data, sizeof root.seen);
    must_do(pg_run(rig->apart, pg_broadcast(&root, sizeof root, PG_U8, 0), &err), &err);
    return root;
}

// when: "In step 1, after before_forward".
static void compare_buffers(const Rig *rig, const Buffers *root, const char *when) {
    const void *wanted[] = {root->seen, &root->calls};
    for (int i = 0; i < 2; i++) {
        const ModuleTensor *buffer = &rig->model->buffers[i];
        const Tensor *tensor = &buffer->tensor;
        if (memcmp(wanted[i], tensor->data, tensor_bytes(tensor)) == 0) continue;
        miss("%s, the buffer `%s` (%s) is %g on rank %d, and was %g on rank 0 before: rank 0's "
             "buffers, of each type, go to all.",
             when, buffer->name, dtype_name(tensor->dtype), first_of(tensor, tensor->data),
             rig->rank, first_of(tensor, wanted[i]));
    }
}

// Buffers are rank 0's in each forward after a reduced backward, and after sync_buffers.
static void check_buffers(Rig *rig) {
    Error err = {0};
    rig_open(rig, 1 << 20);
    float *weight = module_parameter(module_child(rig->model, "a"), 0)->data;
    for (int step = 0; step < STEPS; step++) {
        char when[64];
        snprintf(when, sizeof when, "In step %d, after before_forward", step);
        const Buffers root = take_buffers(rig);
        *weight += (float)rig->rank;
        const float mine = *weight;
        must("before_forward", rig->file->before_forward(rig->self, true, &err), &err);
        compare_buffers(rig, &root, when);
        if (*weight != mine)
            miss("%s, rank %d's a.weight is no longer its own: parameters travel once, in open. "
                 "Equal gradients keep them equal, and each step would send as many bytes again.",
                 when, rig->rank);
        must("backward", backward(rig, rig->model, step, &err), &err);
        must("finish_backward", rig->file->finish_backward(rig->self, &err), &err);
    }
    const Buffers root = take_buffers(rig);
    must("sync_buffers", rig->file->sync_buffers(rig->self, &err), &err);
    compare_buffers(rig, &root, "After sync_buffers");
    rig_close(rig);
}

// After close, the model trains alone, in memory of its own.
static void check_close(Rig *rig) {
    Error err = {0};
    rig_open(rig, 100);
    rig_step(rig, 0, 1, true);
    rig->file->close(rig->self);
    module_zero_grad(rig->model);
    module_zero_grad(rig->twin);
    for (size_t t = 0; t < rig->tensors.count; t++)
        if (rig->tensors.items[t].tensor->on_ready)
            miss("After close, %s still has its on_ready: the next backward calls into memory that "
                 "is freed.",
                 rig->tensors.items[t].name);
        else if (!rig->tensors.items[t].tensor->grad && rig->twins.items[t].tensor->grad)
            miss("After close, %s has no memory for its gradient: module_own_grads gives it back.",
                 rig->tensors.items[t].name);
    must("backward", backward(rig, rig->model, 1, &err), &err);
    must_do(backward(rig, rig->twin, 1, &err), &err);
    check_held(rig, 0);
}

// The last rank fails in its second step; the others' functions must return the group's error.
static void check_lost(Rig *rig) {
    Error err = {0};
    rig_open(rig, 64);
    rig_step(rig, 0, 1, true);
    if (rig->rank == rig->size - 1) {
        error_set(&err, STATUS_FAILED, "rank %d is lost", rig->rank);
        (void)pg_abort(rig->group, &err);
        // The aborting rank stays until all other ranks have seen the error.
        (void)pg_run(rig->apart, pg_barrier(), &(Error){0});
        return;
    }
    module_zero_grad(rig->model);
    int status = rig->file->before_forward(rig->self, true, &err);
    if (status == 0) status = backward(rig, rig->model, 1, &err);
    if (status == 0) status = rig->file->finish_backward(rig->self, &err);
    if (status == 0)
        miss("Rank %d was lost, and on rank %d no function returned -1: the error of pg_run, "
             "pg_start or pg_work_wait was not returned, and this rank trains on with numbers that "
             "were never reduced.",
             rig->size - 1, rig->rank);
    if (!strstr(err.message, "is lost"))
        miss("The error after a lost rank is \"%s\": return -1 with the err that pg_run, pg_start "
             "or pg_work_wait has filled.",
             err.message);
    (void)pg_run(rig->apart, pg_barrier(), &(Error){0});
    rig_close(rig);
}

static const struct {
    const char *name;
    void (*run)(Rig *rig);
} CHECKS[] = {
    {"open", check_open},     {"mean", check_mean},       {"accumulation", check_accumulation},
    {"order", check_order},   {"frozen", check_frozen},   {"tied", check_tied},
    {"unused", check_unused}, {"buffers", check_buffers}, {"close", check_close},
    {"lost", check_lost},
};

int main(int argc, char **argv) {
    Error err = {0};
    char *word = rig_take_word();
    Rendezvous me;
    if (argc != 3) {
        fprintf(stderr, "usage: tutorial_capstone_ddp CHECK FILE\n");
        return STATUS_USAGE;
    }
    Rig rig = {.op = PG_AVG};
    rig.file = own_file_load(argv[2], "own_ddp", OWN_DDP_VERSION, sizeof *rig.file, &err);
    if (!rig.file) miss("%s", err.message);
    must_do(init_from_env(&me, true, &err), &err);
    rig.device = must_get(device_open("cpu:0", &err), &err);
    rig.group = must_get(init_process_group("shm", &me, rig.device, 5, &err), &err);
    rig.apart = must_get(pg_split(rig.group, 0, &err), &err);
    rig.rank = me.rank;
    on_root = me.rank == 0 && me.world_size > 1;
    rig.size = me.world_size;
    for (size_t i = 0; i < sizeof CHECKS / sizeof *CHECKS; i++) {
        if (strcmp(CHECKS[i].name, argv[1]) != 0) continue;
        CHECKS[i].run(&rig);
        rig_end(word, rig.rank);
        return STATUS_OK;
    }
    fprintf(stderr, "there is no check %s\n", argv[1]);
    return STATUS_USAGE;
}
