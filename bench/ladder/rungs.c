/* rungs.c: the rungs. Read rung_step first, then its callees.
 *
 * A Part is one device's share: its rows of the batch, its model, its optimizer. The first two
 * rungs are the library's DataParallel, which needs only the first device's Part; the last two are
 * its DistributedDataParallel. The rungs between are written out here, so that from rung to rung
 * one line moves from the main thread to the devices, or is removed. To stay short, it sends each
 * tensor alone, where the library packs small ones (dp/bundle.c): over a link, a latency more for
 * each.
 *
 * Threads that outlive a step are bound to their device's share of the cores, as the processes are.
 */
#include "bench/ladder/rungs.h"

#include "common/base/cores.h"
#include "common/base/memory.h"
#include "common/data/sampler.h"
#include "common/device/worker.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/nn/tape.h"
#include "common/train/setup.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/rendezvous/init.h"
#include "dp/data_parallel.h"

enum { LINE = 16 }; // LINE: how many floats a cache line has
static const double TIMEOUT_S = 300;

typedef struct Part {
    const Rung *rung;
    int place;
    Device *device;
    Module *model, *module; // a step runs module: the model, or its wrapper
    NamedTensors parameters;
    Optimizer *optimizer;
    Tape *tape;
    ProcessGroup *group; // of all parts; NULL below the rung ALL_REDUCE
    size_t begin, end;   // the device works on the rows begin .. end - 1 of the batch
    Tensor *x, *target, *outputs;
    float *slab; // [slab_floats], all gradients, in the group's memory. NULL: the rung is neither
                 // PER_PARAMETER nor FLAT_GRADIENTS
    size_t slab_floats;
} Part;

struct Rung {
    const Course *course;
    Ingredient has;
    size_t steps; // how many were taken
    Tape *head;   // the main thread's tape on the first device; NULL if the devices are processes
    int count;
    Part parts[LADDER_DEVICES_MAX]; // [count]: those of all devices, or this rank's alone
};

static const struct {
    const char *name, *says;
} texts[RUNGS] = {
    [FRESH_THREADS] = {"fresh threads", "PyTorch's DP: new threads each forward"},
    [KEPT_THREADS] = {"kept threads", "train_dp: a device keeps its thread"},
    [KEPT_WEIGHTS] = {"kept weights", "weights are sent after an update only"},
    [LOCAL_LOSS] = {"local loss", "outputs stay where they are"},
    [ALL_REDUCE] = {"all-reduce", "the first device sums up and sends it"},
    [OWN_OPTIMIZER] = {"own optimizer", "each updates its weights: none are sent"},
    [PROCESSES] = {"processes", "one per device with rows of its own"},
    [PER_PARAMETER] = {"per parameter", "an all-reduce each: ranks share the sums"},
    [FLAT_GRADIENTS] = {"flat gradients", "one all-reduce for all parameters"},
    [BUCKETS] = {"buckets", "DDP without overlap: a few all-reduces"},
    [OVERLAP] = {"overlap", "train_ddp: they begin within backward"},
};

const char *ingredient_name(Ingredient ingredient) {
    return texts[ingredient].name;
}
const char *ingredient_says(Ingredient ingredient) {
    return texts[ingredient].says;
}
bool ingredient_is_rank(Ingredient ingredient) {
    return ingredient >= PROCESSES;
}

// ---- the batch ----------------------------------------------------------------------------------

static Tensor *host_rows(const Rung *rung, Tape *tape, size_t begin, size_t end) {
    const Course *c = rung->course;
    const size_t *shape = c->data->train.shape, batch = rung->steps % c->batches;
    const size_t all[] = {end - begin, shape[0], shape[1], shape[2]};
    return tape_input(tape, DTYPE_F32, 4, all, c->samples + (batch * c->rows + begin) * c->sample);
}

static Tensor *host_labels(const Rung *rung, Tape *tape, size_t begin, size_t end) {
    const Course *c = rung->course;
    const size_t count = end - begin, batch = rung->steps % c->batches;
    return tape_input(tape, DTYPE_I64, 1, &count, c->labels + batch * c->rows + begin);
}

// Takes the part's rows of a tensor that lies on the first device. There they are a view of it; on
// any other device they are a copy.
static Tensor *take_rows(const Part *part, const Tensor *whole) {
    size_t shape[TENSOR_MAX_DIMS] = {part->end - part->begin, whole->shape[1], whole->shape[2],
                                     whole->shape[3]};
    size_t row = tensor_bytes(whole) / whole->shape[0];
    char *rows = (char *)whole->data + part->begin * row;
    if (part->place == 0) return tape_view(part->tape, whole->dtype, whole->ndim, shape, rows);
    Tensor *taken = tape_tensor(part->tape, whole->dtype, whole->ndim, shape);
    device_copy(part->device, taken->data, whole->device, rows, tensor_bytes(taken));
    return taken;
}

// Sends the whole batch to the first device, and from there its own rows to each device.
static void scatter(Rung *rung) {
    Tensor *x = host_rows(rung, rung->head, 0, rung->course->rows);
    Tensor *labels = host_labels(rung, rung->head, 0, rung->course->rows);
    for (int i = 0; i < rung->count; i++) {
        rung->parts[i].x = take_rows(&rung->parts[i], x);
        if (rung->has >= LOCAL_LOSS) rung->parts[i].target = take_rows(&rung->parts[i], labels);
    }
}

// ---- work of a device ---------------------------------------------------------------------------

static void forward(Part *part) {
    part->outputs = module_forward(part->module, part->tape, part->x);
}

// Computes the contribution of the part's rows to the whole batch's mean loss, and its gradients.
static void loss_and_backward(Part *part) {
    Error err = {0};
    const double rows = (double)part->rung->course->rows;
    Tensor *loss = op_cross_entropy(part->tape, part->outputs, part->target, rows);
    must_do(tape_backward(part->tape, loss, &err), &err);
}

static void communicate(const Part *part, Collective collective) {
    Error err = {0};
    must_do(pg_run(part->group, collective, &err), &err);
}

// Gives every device the sum of a gradient. Below PER_PARAMETER, the first device adds up and sends
// the sum to all others.
static void all_reduce_one(const Part *part, const Tensor *w) {
    const size_t count = tensor_count(w);
    if (part->rung->has >= PER_PARAMETER) {
        communicate(part, pg_all_reduce(w->grad, count, PG_F32, PG_SUM));
    } else {
        communicate(part, pg_reduce(w->grad, count, PG_F32, PG_SUM, 0));
        communicate(part, pg_broadcast(w->grad, count, PG_F32, 0));
    }
}

static void all_reduce(Part *part) {
    Error err = {0};
    if (part->rung->has >= BUCKETS)
        must_do(ddp_finish_backward(part->module, NULL, &err), &err);
    else if (part->rung->has >= FLAT_GRADIENTS)
        communicate(part, pg_all_reduce(part->slab, part->slab_floats, PG_F32, PG_SUM));
    else
        for (size_t k = 0; k < part->parameters.count; k++)
            all_reduce_one(part, part->parameters.items[k].tensor);
}

static void update(Part *part) {
    optimizer_step(part->optimizer, part->rung->course->config->schedule.lr);
}

// The part of a step that a device does by itself, with the sum over the devices if the rung has
// it. Runs on the device's own thread, or in its own process.
static void work(void *argument) {
    Part *part = argument;
    forward(part);
    if (part->rung->has >= LOCAL_LOSS) loss_and_backward(part);
    if (part->rung->has >= ALL_REDUCE) all_reduce(part);
    if (part->rung->has >= OWN_OPTIMIZER) update(part);
}

static void work_backward(void *argument) {
    Part *part = argument;
    Error err = {0};
    must_do(tape_backward(part->tape, part->outputs, &err), &err);
}

static void run_on_all(Rung *rung, void (*function)(void *part)) {
    Error err = {0};
    for (int i = 0; i < rung->count; i++)
        device_submit(rung->parts[i].device, function, &rung->parts[i]);
    for (int i = 0; i < rung->count; i++)
        must_do(device_wait(rung->parts[i].device, TIMEOUT_S, &err), &err);
}

// ---- work of the main thread, for all devices ---------------------------------------------------

// Gathers the outputs on the first device, computes their loss there, and sends to each device the
// gradient of its own outputs.
static void gathered_loss(Rung *rung) {
    Tape *head = rung->head;
    Device *first = head->device;
    const size_t shape[] = {rung->course->rows, rung->parts[0].outputs->shape[1]};
    Tensor *outputs = tape_tensor(head, DTYPE_F32, 2, shape);
    Tensor *target = host_labels(rung, head, 0, shape[0]);
    Error err = {0};
    outputs->requires_grad = true;
    for (int i = 0; i < rung->count; i++) {
        const Part *part = &rung->parts[i];
        device_copy(first, tensor_f32(outputs) + part->begin * shape[1], part->device,
                    part->outputs->data, tensor_bytes(part->outputs));
    }
    Tensor *loss = op_cross_entropy(head, outputs, target, (double)shape[0]);
    must_do(tape_backward(head, loss, &err), &err);
    for (int i = 0; i < rung->count; i++) {
        const Part *part = &rung->parts[i];
        device_copy(part->device, tape_make_grad(part->tape, part->outputs), first,
                    outputs->grad + part->begin * shape[1], tensor_bytes(part->outputs));
    }
}

// Adds all gradients up on the first device, ((g0 + g1) + g2) + ..., in the order of the devices.
static void reduce_to_first(Rung *rung) {
    const Part *first = &rung->parts[0];
    for (size_t k = 0; k < first->parameters.count; k++) {
        Tensor *sum = first->parameters.items[k].tensor;
        for (int i = 1; i < rung->count; i++) {
            const Tensor *w = rung->parts[i].parameters.items[k].tensor;
            float *received = tape_scratch(rung->head, tensor_bytes(w));
            device_copy(first->device, received, w->device, w->grad, tensor_bytes(w));
            device_kernels(first->device)
                ->elementwise->accumulate(sum->grad, received, tensor_count(w));
        }
    }
}

static void send_weights(Rung *rung) {
    const Part *first = &rung->parts[0];
    for (size_t k = 0; k < first->parameters.count; k++) {
        const Tensor *w = first->parameters.items[k].tensor;
        for (int i = 1; i < rung->count; i++) {
            Tensor *copy = rung->parts[i].parameters.items[k].tensor;
            device_copy(copy->device, copy->data, w->device, w->data, tensor_bytes(w));
        }
    }
}

// ---- a step -------------------------------------------------------------------------------------

// Takes a step of the two lowest rungs. The wrapper does all of replicate, scatter, apply, gather
// and reduce.
static void step_data_parallel(Rung *rung) {
    Part *first = &rung->parts[0];
    for (int i = 0; i < rung->count && rung->has == FRESH_THREADS; i++)
        worker_close(rung->parts[i].device); // the next forward starts another one
    first->x = host_rows(rung, first->tape, 0, rung->course->rows);
    first->target = host_labels(rung, first->tape, 0, rung->course->rows);
    forward(first);
    loss_and_backward(first);
    update(first);
}

static void step_threads(Rung *rung) {
    scatter(rung);
    run_on_all(rung, work);
    if (rung->has < LOCAL_LOSS) gathered_loss(rung);
    if (rung->has < LOCAL_LOSS) run_on_all(rung, work_backward);
    if (rung->has < ALL_REDUCE) reduce_to_first(rung);
    if (rung->has < OWN_OPTIMIZER) update(&rung->parts[0]);
    if (rung->has < OWN_OPTIMIZER) send_weights(rung);
}

static void step_process(Rung *rung) {
    Part *mine = &rung->parts[0];
    mine->x = host_rows(rung, mine->tape, mine->begin, mine->end);
    mine->target = host_labels(rung, mine->tape, mine->begin, mine->end);
    work(mine);
}

void rung_step(Rung *rung) {
    for (int i = 0; i < rung->count; i++)
        if (rung->parts[i].model) module_zero_grad(rung->parts[i].model);
    if (rung->has < KEPT_WEIGHTS)
        step_data_parallel(rung);
    else if (rung->has < PROCESSES)
        step_threads(rung);
    else
        step_process(rung);
    for (int i = 0; i < rung->count; i++)
        if (rung->parts[i].tape) tape_reset(rung->parts[i].tape);
    if (rung->head) tape_reset(rung->head);
    rung->steps++;
}

// ---- opening and closing ------------------------------------------------------------------------

// The floats of a gradient in the slab: whole cache lines.
static size_t floats_in_slab(const Tensor *w) {
    return (tensor_count(w) + LINE - 1) / LINE * LINE;
}

// Puts all gradients one after another into memory that the ranks share.
static void share_gradients(Part *part) {
    Error err = {0};
    const NamedTensors *all = &part->parameters;
    for (size_t k = 0; k < all->count; k++)
        part->slab_floats += floats_in_slab(all->items[k].tensor);
    part->slab =
        must_get(pg_shared_alloc(part->group, part->slab_floats * sizeof(float), &err), &err);
    module_release_grads(part->model, all);
    float *next = part->slab;
    for (size_t k = 0; k < all->count; k++) {
        all->items[k].tensor->grad = next;
        next += floats_in_slab(all->items[k].tensor);
    }
}

static void wrap_in_ddp(Part *part) {
    Error err = {0};
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = part->rung->course->bucket_cap_mb;
    config.overlap = part->rung->has >= OVERLAP;
    config.global_normalization = true;
    part->module =
        must_get(distributed_data_parallel(part->model, part->group, &config, &err), &err);
}

// Opens part number `index` of the rung, for the device that has the place `place` among all
// devices.
static Part *open_part(Rung *rung, int index, int place, Device *device) {
    Error err = {0};
    const Course *course = rung->course;
    Part *part = &rung->parts[index];
    *part = (Part){.rung = rung, .place = place, .device = device};
    chunk_bounds(course->rows, (size_t)course->devices, (size_t)place, &part->begin, &part->end);
    if (rung->has < KEPT_WEIGHTS && place > 0) return part; // DataParallel makes replicas itself
    part->model = part->module =
        must_get(train_create_model(course->config, course->data, device, 0, &err), &err);
    part->parameters = module_tensors(part->model, MODULE_PARAMETERS);
    part->tape = tape_create(device, NULL);
    return part;
}

static void bind_to_share(void *argument) {
    const Part *part = argument;
    cpu_set_t all, share;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    cores_share(&all, part->place, part->rung->course->devices, &share);
    (void)sched_setaffinity(0, sizeof share, &share);
}

static void open_threads(Rung *rung) {
    Error err = {0};
    Device *devices[LADDER_DEVICES_MAX];
    ProcessGroup *groups[LADDER_DEVICES_MAX];
    rung->count = rung->course->devices;
    for (int i = 0; i < rung->count; i++) {
        devices[i] = must_get(train_open_device(rung->course->config, i, &err), &err);
        open_part(rung, i, i, devices[i]);
    }
    if (rung->has < KEPT_WEIGHTS) {
        Part *first = &rung->parts[0];
        first->module = must_get(data_parallel(first->model, devices, rung->count, &err), &err);
    }
    if (rung->has >= ALL_REDUCE) {
        must_do(init_thread_groups(rung->count, TIMEOUT_S, groups, &err), &err);
        for (int i = 0; i < rung->count; i++) {
            rung->parts[i].group = groups[i];
            pg_emulate_link(groups[i], devices[i]->link);
        }
    }
    // A rung has a device: NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    rung->head = tape_create(devices[0], NULL);
    run_on_all(rung, bind_to_share);
}

Rung *rung_open(const Course *course, Ingredient ingredient, ProcessGroup *group, Device *device) {
    Rung *rung = memory_zalloc(sizeof *rung);
    *rung = (Rung){.course = course, .has = ingredient};
    if (ingredient_is_rank(ingredient)) {
        rung->count = 1;
        Part *mine = open_part(rung, 0, pg_rank(group), device);
        mine->group = group;
        if (rung->has >= BUCKETS)
            wrap_in_ddp(mine);
        else if (rung->has >= PER_PARAMETER)
            share_gradients(mine);
    } else {
        open_threads(rung);
    }
    const OptimizerConfig optimizer = train_optimizer(course->config);
    for (int i = 0; i < rung->count; i++)
        if (rung->parts[i].model)
            rung->parts[i].optimizer = optimizer_create(rung->parts[i].model, &optimizer);
    return rung;
}

void rung_close(Rung *rung) {
    tape_close(rung->head);
    for (int i = rung->count - 1; i >= 0; i--) {
        Part *part = &rung->parts[i];
        optimizer_close(part->optimizer);
        tape_close(part->tape);
        named_tensors_free(&part->parameters);
        module_close(part->module);
        if (!ingredient_is_rank(rung->has)) pg_close(part->group);
    }
    for (int i = 0; i < rung->count && !ingredient_is_rank(rung->has); i++)
        device_close(rung->parts[i].device);
    free(rung);
}

Module *rung_model(const Rung *rung) {
    return rung->parts[0].model;
}
