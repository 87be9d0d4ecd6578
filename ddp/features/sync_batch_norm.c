/* sync_batch_norm.c: SyncBatchNorm as a layer, with its two collectives.
 *
 *     forward    own statistics -> all_gather -> merged in rank order -> y
 *     backward   own sums of dy and of dy (x - mean) -> all_reduce -> dx
 *
 * The arithmetic is the kernels' (batch_norm_statistics and what follows it). The gradients of
 * weight and bias are this rank's own sums: DistributedDataParallel reduces them like any others.
 */
#include "ddp/features/sync_batch_norm.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/layers.h"
#include "ddp/features/features.h"
#include "ddp/group/operation.h"

static const char OP[] = "sync_batch_norm";

// Shared by all converted layers of a model.
typedef struct Shared {
    ProcessGroup *group;
    int layers; // the last to be closed closes the group
} Shared;

typedef struct Saved { // for backward
    ProcessGroup *group;
    HalfNorm norm;    // this rank's x; norm.of.mean and invstd are of all ranks' elements
    Precision stored; // x, y and their gradients. In float32 norm.of is all
    double *count;    // [1] of those elements, per channel; device memory
} Saved;

static const Kernels *kernels_of(const Tape *tape) {
    return device_kernels(tape->device);
}

// Runs a collective, counts its time as exposed communication, and records it on the trace's track
// of this thread, which waits for it.
static bool communicate(Tape *tape, ProcessGroup *group, Collective c) {
    Error err = {0};
    const Profile *profile = tape->profile;
    Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    uint64_t begin_ns = clock_ns();
    int status = pg_run(group, c, &err);
    if (profile)
        trace_add(profile->trace, profile->track,
                  &(TraceSpan){.name = pg_operation_name((int)c.kind),
                               .number = -1,
                               .begin_ns = begin_ns,
                               .end_ns = clock_ns(),
                               .bytes = c.count * pg_type_bytes(c.type),
                               .bucket = -1});
    profile_leave(tape->profile, phase);
    if (status) tape_fail(tape, OP, "%s", err.message);
    return status == 0;
}

// Weight's and bias' gradients are completed first: their reduction overlaps the wait for the other
// ranks.
static void backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    Saved *s = node->saved;
    BatchNorm *norm = &s->norm.of;
    norm->weight = tensor_f32(weight); // a sharded weight is elsewhere now
    norm->bias = tensor_f32(bias);
    const Kernels *kernels = kernels_of(tape);
    const float *dy = node->output->grad;
    NormGradient to = {0};
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    float *sums = tape_memory(tape, 2 * norm->c * sizeof *sums); // [2, c]
    if (s->stored == PRECISION_F32)
        kernels->norm->batch_norm_gradient_sums(norm, dy, sums, &to);
    else
        kernels->halves->batch_norm_gradient_sums(s->stored, &s->norm, (const void *)dy, sums, &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    to.dx = tape_grad(tape, x, &to.add_dx);
    if (!to.dx) return; // on every rank: it depends on the model, not on the data
    if (!communicate(tape, s->group, pg_all_reduce(sums, 2 * norm->c, PG_F32, PG_SUM))) return;
    if (norm->n * norm->inner > 0 && s->stored == PRECISION_F32)
        kernels->norm->batch_norm_gradient_apply(norm, dy, sums, s->count, &to);
    else if (norm->n * norm->inner > 0)
        kernels->halves->batch_norm_gradient_apply(s->stored, &s->norm, (const void *)dy, sums,
                                                   s->count, (void *)to.dx, &to);
    tape_grad_done(tape, x);
}

// Fills the norm's mean and invstd, and s->count, with the statistics of all ranks, and updates the
// running ones. A row is {mean[c], invstd[c], count}.
static bool exchange_statistics(Tape *tape, Saved *s) {
    BatchNorm *norm = &s->norm.of;
    size_t c = norm->c, width = 2 * c + 1, ranks = (size_t)pg_size(s->group);
    float *row = tape_scratch(tape, (1 + ranks) * width * sizeof *row), *rows = row + width;
    norm->mean = row;
    norm->invstd = row + c;
    if (s->stored == PRECISION_F32)
        kernels_of(tape)->norm->batch_norm_statistics(norm);
    else
        kernels_of(tape)->halves->batch_norm_statistics(s->stored, &s->norm);
    kernels_of(tape)->elementwise->fill(row + 2 * c, (float)(norm->n * norm->inner), 1);
    if (!communicate(tape, s->group, pg_all_gather(row, rows, width, PG_F32))) return false;
    norm->mean = tape_memory(tape, c * sizeof *norm->mean);
    norm->invstd = tape_memory(tape, c * sizeof *norm->invstd);
    s->count = tape_memory(tape, sizeof *s->count);
    kernels_of(tape)->norm->batch_norm_merge(norm, rows, ranks, s->count);
    double count; // the host blocks for it, only to report the error
    device_copy(NULL, &count, tape->device, s->count, sizeof count);
    if (count != 1) return true;
    tape_fail(tape, OP,
              "Expected more than 1 value per channel when training, got 1 in all of %zu ranks",
              ranks);
    return false;
}

static Tensor *train(Tape *tape, Tensor *x, const BatchNormState *state, ProcessGroup *group) {
    if (!batch_norm_check_input(tape, OP, x, state)) return NULL;
    Saved *s = tape_alloc(tape, sizeof *s);
    *s = (Saved){.group = group, .norm.of = batch_norm_of(x, state), .stored = tensor_precision(x)};
    if (tensor_is_half(x)) s->norm.x = tensor_half(x);
    if (!exchange_statistics(tape, s)) return NULL;
    batch_norm_count_batch(state);
    Tensor *y = tape_tensor(tape, x->dtype, x->ndim, x->shape);
    if (s->stored == PRECISION_F32)
        kernels_of(tape)->norm->batch_norm_apply(&s->norm.of, y->data);
    else
        kernels_of(tape)->halves->batch_norm_apply(s->stored, &s->norm, y->data);
    Tensor *const inputs[] = {x, state->weight, state->bias};
    tape_backward_reads(tape_record(tape, OP, backward, y, 3, inputs, s), TAPE_READS_INPUTS);
    return y;
}

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    const Shared *shared = self->state;
    const BatchNormState state = layer_batch_norm_state(self);
    if (!x) return NULL;
    if (x->ndim < 2)
        return tape_fail(tape, OP, "expected at least 2D input (got %dD input)", x->ndim);
    if (x->shape[1] == 0) return tape_fail(tape, OP, "number of input channels should be non-zero");
    if (!tape->training || pg_size(shared->group) == 1) return op_batch_norm(tape, x, &state);
    return train(tape, x, &state, shared->group);
}

// ---- conversion -----------------------------------------------------------------------------

static void release(Shared *shared) {
    if (--shared->layers > 0) return;
    pg_close(shared->group);
    free(shared);
}

static void destroy(Module *self) {
    release(self->state);
}

static void convert(Module *module, Shared *shared) {
    if (strcmp(module->type, "BatchNorm") == 0) {
        module->type = "SyncBatchNorm";
        module->forward = forward;
        module->destroy = destroy;
        module->state = shared;
        shared->layers++;
    }
    for (int i = 0; i < module->child_count; i++) convert(module->children[i], shared);
}

Module *sync_batch_norm_convert(Module *model, ProcessGroup *group, Error *err) {
    ProcessGroup *copy = pg_split(group, 0, err); // even without any layer: collective
    if (!copy) return NULL;
    Shared *shared = memory_zalloc(sizeof *shared);
    *shared = (Shared){.group = copy, .layers = 1}; // 1: this function's own reference
    convert(model, shared);
    release(shared);
    return model;
}

// ---- the command line -----------------------------------------------------------------------

static int prepare_model(Module *model, ProcessGroup *group, Error *err) {
    if (!module_has_type(model, "BatchNorm"))
        return error_set(err, STATUS_USAGE,
                         "--sync-batch-norm has no effect: the model has no batch norm");
    return sync_batch_norm_convert(model, group, err) ? 0 : -1;
}

const DdpFeature sync_batch_norm_feature = {
    .flag = "sync-batch-norm",
    .help = "batch norm over the rows of all ranks (SyncBatchNorm)",
    .prepare_model = prepare_model};
