/* own_fsdp_judge.c: see own_fsdp_judge.h. The reference for the parameters is the twin, a copy of
 * the model that is whole on every rank.
 */
#include "tutorials/capstones/own_fsdp_judge.h"

#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/nn/layers.h"
#include "common/nn/ops.h"

Rig rig = {.op = PG_AVG, .parts = 1};

// Delayed on rank 0: the job reports another rank's sentence, which names rank 0's rows as such.
void miss(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char sentence[800];
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (rig.rank == 0 && rig.size > 1) usleep(200000);
    printf("MISS %s\n", sentence);
    process_end(STATUS_FAILED);
}

// Misses after an error of the student's function.
int must(const char *function, int status, const Error *err) {
    if (status != 0 && !rig.may_fail)
        miss("%s failed: %s", function, err->message[0] ? err->message : "and did not say why");
    return status;
}

// ---- the model ----------------------------------------------------------------------------------

static void sleep_backward(Tape *tape, TapeNode *node) {
    tape_pass_gradient(tape, node, node->inputs[0], true);
    usleep(SLEEP_US);
}

// An identity that takes time, forward and backward.
static Tensor *sleeping(Tape *tape, Tensor *x) {
    if (!rig.sleeps || !x) return x;
    usleep(SLEEP_US);
    Tensor *y = tape_view(tape, x->dtype, x->ndim, x->shape, x->data);
    tape_record(tape, "sleep", sleep_backward, y, 1, &x, NULL);
    return y;
}

// y = down(up(x)) + wide(thin(x)); thin has two rows, fewer than ranks.
static Tensor *block_forward(Module *self, Tape *tape, Tensor *x) {
    x = sleeping(tape, x);
    Tensor *up = module_forward(module_child(self, "up"), tape, x);
    Tensor *left = module_forward(module_child(self, "down"), tape, up);
    Tensor *thin = module_forward(module_child(self, "thin"), tape, x);
    return op_add(tape, left, module_forward(module_child(self, "wide"), tape, thin));
}

static Module *block(Device *device) {
    Module *self = module_create("Block", block_forward);
    module_add(self, "up", layer_linear_relu(device, WIDTH, INNER));
    module_add(self, "down", layer_linear(device, INNER, WIDTH));
    module_add(self, "thin", layer_linear(device, WIDTH, 2));
    module_add(self, "wide", layer_linear(device, 2, WIDTH));
    if (rig.unused) module_add(self, "never_used", layer_linear(device, 7, 3));
    return self;
}

// The blocks between two layers of the root. twice: the third block runs after the fifth, too;
// unused: the sixth does not run.
static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    x = module_forward(module_child(self, "first"), tape, x);
    for (int i = 0; i < BLOCKS; i++) {
        if (rig.unused && i == 5) continue;
        x = module_forward(self->children[1 + i], tape, x);
        if (rig.twice && i == 4) x = module_forward(self->children[1 + 2], tape, x);
    }
    return module_forward(module_child(self, "last"), tape, x);
}

Module *judged_model(void) {
    Module *model = module_create("Judged", forward);
    module_add(model, "first", layer_linear_relu(rig.device, WIDTH, WIDTH));
    for (int i = 0; i < BLOCKS; i++)
        module_add(model, (char[]){'b', (char)('0' + i), '\0'}, block(rig.device));
    module_add(model, "last", layer_linear(rig.device, WIDTH, WIDTH));
    Module *b1 = model->children[1 + 1], *b6 = model->children[1 + 6];
    if (rig.tied)
        module_tie_parameter(module_child(b6, "up"), "weight", module_child(b1, "up"), "weight");
    for (int i = 0; i < 4 && rig.frozen; i++) {
        module_parameter(b1->children[i], 0)->requires_grad = false;
        module_parameter(b1->children[i], 1)->requires_grad = false;
    }
    if (rig.frozen) module_parameter(module_child(b6, "down"), 0)->requires_grad = false;
    if (rig.frozen) module_parameter(model->children[0], 1)->requires_grad = false;
    return model;
}

// Numbers that differ by rank, tensor and index, and whose sums round; so small that no block
// amplifies.
float judged_number(int rank, size_t tensor, size_t i) {
    return 0.3f * (0.013f * (float)((tensor * 31 + i * 7) % 41) - 0.21f + 0.037f * (float)rank);
}

static size_t number_in_model(const Tensor *tensor) {
    size_t t = 0;
    while (rig.tensors.items[t].tensor != tensor) t++;
    return t;
}

// ---- shards -------------------------------------------------------------------------------------

Rows rows_of(const Tensor *whole) {
    const size_t n = whole->shape[0], chunk = (n + (size_t)rig.size - 1) / (size_t)rig.size;
    const size_t first = (size_t)rig.rank * chunk < n ? (size_t)rig.rank * chunk : n;
    return (Rows){n, chunk, first, n - first < chunk ? n - first : chunk, tensor_count(whole) / n};
}

size_t padded_bytes(const OwnFsdpUnit *unit, size_t ranks) {
    size_t bytes = 0;
    for (size_t i = 0; i < unit->parameters.count; i++) {
        const Rows rows =
            rows_of(rig.twins.items[number_in_model(unit->parameters.items[i].tensor)].tensor);
        bytes += ranks * rows.chunk * rows.length * sizeof(float);
    }
    return bytes;
}

// The contents found in place of `wanted`.
static const char *origin(size_t t, size_t i, float found) {
    if (found == judged_number(rig.rank, t, i) && rig.rank > 0)
        return "this rank's own first weight; all ranks begin with rank 0's";
    const Rows rows = rows_of(rig.twins.items[t].tensor);
    const size_t own = i + rows.first * rows.length;
    if (rig.rank > 0 && own < tensor_count(rig.twins.items[t].tensor) &&
        found == judged_number(rig.rank, t, own))
        return "this rank's own first weight; all ranks begin with rank 0's";
    if (rig.rank > 0 && own < tensor_count(rig.twins.items[t].tensor) &&
        found == tensor_f32(rig.twins.items[t].tensor)[own])
        return "that of this rank's first row; the whole begins with rank 0's rows";
    if (found == judged_number(0, t, i) && rig.step > 0)
        return "the weight before the last update: gather again in every step";
    return "not what the ranks' shards hold there";
}

static void check_sharded(const char *after, const char *unit, size_t t) {
    const Tensor *tensor = rig.tensors.items[t].tensor, *whole = rig.twins.items[t].tensor;
    const Rows rows = rows_of(whole);
    const char *name = rig.tensors.items[t].name;
    const bool done = strcmp(after, "finish_backward") == 0;
    if (!tensor->shard)
        miss("After %s%s%s, %s is still whole on rank %d of %d (shape[0] is %zu, shard is NULL): "
             "%s.",
             after, *unit ? " of " : "", unit, name, rig.rank, rig.size, tensor->shape[0],
             done ? "the optimizer would update all of it on every rank"
                  : "show its shard, and free the whole");
    if (tensor->shape[0] != rows.count || tensor->shard->first != rows.first ||
        tensor->shard->rows != rows.all)
        miss("After %s%s%s, %s has rows %zu to %zu of %zu on rank %d of %d, expected %zu to %zu of "
             "%zu: c = ceil(n / W) = %zu rows a rank, fewer or none on the last ranks.",
             after, *unit ? " of " : "", unit, name, tensor->shard->first,
             tensor->shard->first + tensor->shape[0], tensor->shard->rows, rig.rank, rig.size,
             rows.first, rows.first + rows.count, rows.all, rows.chunk);
    if (!tensor->grad != !tensor->requires_grad)
        miss("After %s%s%s, grad of %s is %s: a shard has memory for a gradient if its parameter "
             "requires one, and else NULL.",
             after, *unit ? " of " : "", unit, name, tensor->grad ? "set" : "NULL");
    const float *mine = tensor->data,
                *wanted = (const float *)whole->data + rows.first * rows.length;
    for (size_t i = 0; i < rows.count * rows.length; i++)
        if (memcmp(&mine[i], &wanted[i], sizeof *mine) != 0)
            miss("After %s%s%s, the shard of %s on rank %d of %d has %.8g at [%zu], expected %.8g: "
                 "%s.",
                 after, *unit ? " of " : "", unit, name, rig.rank, rig.size, (double)mine[i], i,
                 (double)wanted[i], origin(t, i, mine[i]));
}

static void check_whole(const char *after, const char *unit, size_t t) {
    const Tensor *tensor = rig.tensors.items[t].tensor, *twin = rig.twins.items[t].tensor;
    const char *name = rig.tensors.items[t].name;
    const Rows rows = rows_of(twin);
    if (!tensor->shard && tensor->shape[0] > rows.all)
        miss("After %s of %s, %s has %zu rows on rank %d, and the whole has %zu: the rows beyond n "
             "are padding of the pieces.",
             after, unit, name, tensor->shape[0], rig.rank, rows.all);
    if (tensor->shard || tensor->shape[0] != rows.all)
        miss("After %s of %s, %s has %zu of %zu rows on rank %d%s: gather the unit's parameters "
             "before it computes.",
             after, unit, name, tensor->shape[0], rows.all, rig.rank,
             tensor->shard ? ", and its shard is set" : "");
    const float *found = tensor->data, *wanted = twin->data;
    for (size_t i = 0; i < tensor_count(twin); i++)
        if (memcmp(&found[i], &wanted[i], sizeof *found) != 0)
            miss("After %s of %s in step %d, %s has %.8g at [%zu], of rank %zu's rows, on rank %d "
                 "of %d, expected %.8g: %s.",
                 after, unit, rig.step, name, (double)found[i], i, i / (rows.chunk * rows.length),
                 rig.rank, rig.size, (double)wanted[i], origin(t, i, found[i]));
}

// ---- memory -------------------------------------------------------------------------------------

size_t host_bytes(void) {
    const struct mallinfo2 info = mallinfo2();
    const size_t all = info.uordblks + info.hblkhd;
    return all > rig.device->bytes ? all - rig.device->bytes : 0;
}

static void check_memory(const char *after, const char *unit) {
    const Memory *memory = &rig.memory;
    if (memory->limit == 0) return;
    const size_t shared = (size_t)pg_totals(rig.group).shared_bytes;
    const size_t peak = rig.device->peak_bytes + shared - memory->device;
    if (peak > memory->limit)
        miss("In step %d, up to the end of %s of %s, rank %d held %zu bytes, the most being %zu: 2 "
             "shards + 2 root + 4 units of %zu bytes. Which units are whole at this time, and is "
             "the memory of the others freed or used again?",
             rig.step, after, unit, rig.rank, peak, memory->limit, memory->unit);
    const size_t host = host_bytes();
    if (host > memory->host + 4 * memory->unit)
        miss(
            "In step %d, after %s of %s, rank %d has %zu bytes more of malloc's memory than before "
            "open: weights and gradients lie in memory of device_alloc or pg_shared_alloc, which "
            "are counted.",
            rig.step, after, unit, rig.rank, host - memory->host);
}

// ---- the judge's functions, between the units and the student's ---------------------------------

static void check_unit(size_t u, const char *after,
                       void (*check)(const char *, const char *, size_t)) {
    const OwnFsdpUnit *unit = &rig.listed[u];
    if (rig.may_fail) return; // after an error a parameter may hold anything
    for (size_t i = 0; i < unit->parameters.count; i++)
        check(after, unit->name, number_in_model(unit->parameters.items[i].tensor));
}

static double ms_since(uint64_t begin) {
    return (double)(clock_ns() - begin) / 1e6;
}

static void *judge_open(Module *model, const OwnFsdpUnit *units, size_t count, ProcessGroup *group,
                        ReduceOp op, Error *err) {
    rig.listed = units;
    rig.count = count;
    rig.self = rig.file->open(model, units, count, group, op, err);
    must("open", rig.self ? 0 : -1, err);
    for (size_t u = 0; u < count; u++) check_unit(u, "open", check_sharded);
    for (size_t t = 0; t < rig.tensors.count; t++)
        rig.shard_grads[t] = rig.tensors.items[t].tensor->grad;
    return &rig;
}

static int judge_before_forward(void *self, size_t u, Error *err) {
    (void)self;
    const uint64_t begin = clock_ns();
    if (must("before_forward", rig.file->before_forward(rig.self, u, err), err) != 0) return -1;
    rig.spent[u].forward += ms_since(begin);
    check_unit(u, "before_forward", check_whole);
    check_memory("before_forward", rig.listed[u].name);
    return 0;
}

static int judge_after_forward(void *self, size_t u, bool follows, Error *err) {
    (void)self;
    if (must("after_forward", rig.file->after_forward(rig.self, u, follows, err), err) != 0)
        return -1;
    if (u < rig.count - 1 || !follows) check_unit(u, "after_forward", check_sharded);
    check_memory("after_forward", rig.listed[u].name);
    return 0;
}

static void check_gradient_memory(const char *after, const char *unit, size_t t) {
    Tensor *tensor = rig.tensors.items[t].tensor;
    const char *name = rig.tensors.items[t].name;
    const bool held = rig.holds;
    if (!tensor->requires_grad && tensor->grad)
        miss("After %s of %s, grad of %s is set, and the parameter requires no gradient: NULL.",
             after, unit, name);
    if (!tensor->requires_grad) return;
    if (!tensor->grad || tensor->grad == rig.shard_grads[t])
        miss("After %s of %s, grad of %s is %s: backward writes the whole gradient.", after, unit,
             name, tensor->grad ? "the shard's, which has too few rows" : "NULL");
    if (tensor->has_grad && !held)
        miss("After %s of %s in step %d, has_grad of %s is set, and backward has written nothing "
             "yet: it would add to old numbers.",
             after, unit, rig.step, name);
    if (!tensor->has_grad && held && rig.twins.items[t].tensor->requires_grad)
        miss("After %s of %s in step %d, has_grad of %s is not set, although the unit has run "
             "backward already (complete was false): keep the whole gradient, and reduce it once.",
             after, unit, rig.step, name);
    const float *kept = rig.kept[t];
    if (tensor->has_grad && kept && memcmp(tensor->grad, kept, tensor_bytes(tensor)) != 0)
        miss("After %s of %s in step %d, the whole gradient of %s has other numbers than its last "
             "backward left (complete was false): keep its memory, and reduce it once.",
             after, unit, rig.step, name);
    for (size_t i = 0; i < tensor_count(tensor) && !tensor->has_grad; i++) tensor->grad[i] = NAN;
}

static int judge_before_backward(void *self, size_t u, Error *err) {
    (void)self;
    const uint64_t begin = clock_ns();
    if (must("before_backward", rig.file->before_backward(rig.self, u, err), err) != 0) return -1;
    rig.spent[u].backward += ms_since(begin);
    check_unit(u, "before_backward", check_whole);
    rig.holds = rig.held[u];
    check_unit(u, "before_backward", check_gradient_memory);
    check_memory("before_backward", rig.listed[u].name);
    return 0;
}

// Copies the whole gradient.
static void keep_gradient(const char *after, const char *unit, size_t t) {
    const Tensor *tensor = rig.tensors.items[t].tensor;
    (void)after;
    (void)unit;
    if (!tensor->requires_grad || !tensor->has_grad) return;
    if (!rig.kept[t]) rig.kept[t] = memory_zalloc(tensor_bytes(tensor));
    memcpy(rig.kept[t], tensor->grad, tensor_bytes(tensor));
}

static int judge_after_backward(void *self, size_t u, bool complete, Error *err) {
    (void)self;
    if (!complete) check_unit(u, "backward", keep_gradient);
    const uint64_t begin = clock_ns();
    if (must("after_backward", rig.file->after_backward(rig.self, u, complete, err), err) != 0)
        return -1;
    rig.spent[u].reduce += ms_since(begin);
    rig.held[u] = !complete;
    check_unit(u, "after_backward", check_sharded);
    check_memory("after_backward", rig.listed[u].name);
    return 0;
}

static int judge_finish_backward(void *self, Error *err) {
    (void)self;
    const uint64_t begin = clock_ns();
    if (must("finish_backward", rig.file->finish_backward(rig.self, err), err) != 0) return -1;
    rig.spent[rig.count].reduce += ms_since(begin);
    for (size_t u = 0; u < rig.count; u++) check_unit(u, "finish_backward", check_sharded);
    check_memory("finish_backward", rig.listed[rig.count - 1].name);
    return 0;
}

static void judge_close(void *self) {
    (void)self;
    rig.file->close(rig.self);
}

const OwnFsdp JUDGE = {
    OWN_FSDP_VERSION,      judge_open,           judge_before_forward,  judge_after_forward,
    judge_before_backward, judge_after_backward, judge_finish_backward, judge_close};
