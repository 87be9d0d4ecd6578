/* collect.c: see collect.h. Rank 0 collects in host memory: each rank sends its rows, and rank 0
 * holds every tensor once.
 */
#include "ddp/fsdp/collect.h"

#include <string.h>

#include "common/base/memory.h"
#include "ddp/fsdp/fsdp_internal.h"

enum { STATES = 2 };

// ---- the optimizer ------------------------------------------------------------------------------

// The functions of OptimizerSharding have no status: a failure is the group's, whose next
// collective returns it.

// Every shard is a whole parameter to the optimizer.
static void apply(void *state) {
    const ShardedOptimizer *self = state;
    if (self->ahead && self->ahead->now.count > 0)
        ahead_step(self->ahead);
    else
        optimizer_apply(self->sharding.optimizer);
}

static void add_up(void *state, int64_t *values, size_t count) {
    const ShardedOptimizer *self = state;
    Error ignored = {0};
    (void)pg_run(self->group, pg_all_reduce(values, count, PG_I64, PG_SUM), &ignored);
}

OptimizerSharding *sharded_optimizer(ShardedOptimizer *self, Module *root, ProcessGroup *group) {
    if (self->parts) return &self->sharding;
    NamedTensors parameters = module_tensors(root, MODULE_PARAMETERS);
    self->group = group;
    self->parts = memory_zalloc((parameters.count + 1) * sizeof *self->parts);
    for (size_t i = 0; i < parameters.count; i++)
        self->parts[i].count = tensor_count(parameters.items[i].tensor);
    named_tensors_free(&parameters);
    self->sharding =
        (OptimizerSharding){.parts = self->parts, .apply = apply, .add_up = add_up, .state = self};
    return &self->sharding;
}

OptimizerSharding *fsdp_sharding(Module *root) {
    Fsdp *fsdp = fsdp_of(root);
    const FsdpConfig *config = &fsdp->root->config;
    fsdp->optimizer.ahead = config->overlap && config->unshard_in_step ? fsdp : NULL;
    return sharded_optimizer(&fsdp->optimizer, root, fsdp->group);
}

// ---- whole tensors ------------------------------------------------------------------------------

typedef struct Collector {
    ProcessGroup *group;
    SafeTensors *content; // of rank 0
    float *next;          // on rank 0: the next tensor's memory
} Collector;

// Sends this rank's rows of a tensor, in `memory`, to rank 0.
static int send_rows(const Collector *to, const Tensor *tensor, const float *memory, Error *err) {
    const size_t count = tensor_count(tensor), bytes = count * sizeof *memory;
    if (count == 0) return 0;
    float *host = memory_zalloc(bytes);
    device_copy(NULL, host, tensor->device, memory, bytes);
    const int status = pg_run(to->group, pg_send(host, count, PG_F32, 0), err);
    free(host);
    return status;
}

// Collects a tensor's `memory`, which has the tensor's rows, as entry PREFIX/NAME(.SUFFIX).
static int collect(Collector *to, const NamedTensor *named, const float *memory, const char *prefix,
                   const char *suffix, Error *err) {
    const Tensor *tensor = named->tensor, whole = tensor_whole(tensor);
    const size_t rows = whole.shape[0], row = rows ? tensor_count(&whole) / rows : 0;
    const int world = pg_size(to->group);
    if (pg_rank(to->group) != 0) return send_rows(to, tensor, memory, err);
    device_copy(NULL, to->next, tensor->device, memory, tensor_bytes(tensor));
    for (int r = 1; r < world; r++) {
        const ChunkRows theirs = chunk_rows(rows, world, r);
        float *at = to->next + theirs.first * row;
        const size_t n = theirs.count * row;
        if (n > 0 && pg_run(to->group, pg_recv(at, n, PG_F32, r), err) != 0) return -1;
    }
    SafeEntry *entry = &to->content->entries[to->content->count++];
    *entry = (SafeEntry){
        .dtype = whole.dtype, .ndim = whole.ndim, .data = to->next, .bytes = tensor_bytes(&whole)};
    memcpy(entry->shape, whole.shape, sizeof entry->shape);
    snprintf(entry->name, sizeof entry->name, "%s/%s%s%s", prefix, named->name, *suffix ? "." : "",
             suffix);
    to->next += tensor_count(&whole);
    return 0;
}

static int collect_states(Collector *to, const Optimizer *optimizer, Error *err) {
    for (int s = 0; s < STATES && optimizer_state_name(optimizer, s); s++)
        for (size_t i = 0; i < optimizer->parameters.count; i++)
            if (collect(to, &optimizer->parameters.items[i], optimizer->state[s][i], "optimizer",
                        optimizer_state_name(optimizer, s), err) != 0)
                return -1;
    return 0;
}

int collect_shards(Module *root, ProcessGroup *group, FsdpCollected what,
                   const Optimizer *optimizer, SafeTensors *content, Error *err) {
    const bool grads = what == FSDP_GRADIENTS;
    NamedTensors parameters = module_tensors(root, MODULE_PARAMETERS);
    const size_t tensors = optimizer ? 1 + STATES : 1;
    const size_t floats = pg_rank(group) == 0 ? tensors * module_count(root, MODULE_PARAMETERS) : 0;
    *content = (SafeTensors){0};
    content->buffer = memory_zalloc((floats + 1) * sizeof(float));
    content->entries = memory_zalloc((tensors * parameters.count + 1) * sizeof(SafeEntry));
    Collector to = {group, content, content->buffer};
    int status = 0;
    for (size_t i = 0; i < parameters.count && status == 0; i++) {
        const NamedTensor *named = &parameters.items[i];
        const Tensor *tensor = named->tensor;
        CHECK(tensor->shard, "fsdp_collect: %s is whole", named->name);
        if (!grads || tensor->has_grad)
            status = collect(&to, named, grads ? tensor->grad : tensor->data, "model", "", err);
    }
    if (status == 0 && optimizer) status = collect_states(&to, optimizer, err);
    named_tensors_free(&parameters);
    return status;
}

int fsdp_collect(Module *root, FsdpCollected what, const Optimizer *optimizer, SafeTensors *content,
                 Error *err) {
    return collect_shards(root, fsdp_group(root), what, optimizer, content, err);
}
