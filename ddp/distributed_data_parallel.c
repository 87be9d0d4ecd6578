/* distributed_data_parallel.c: the wrapper: check once, broadcast once, then leave gradients to the
 * Reducer.
 *
 * What makes ranks equal, in the order of PyTorch's constructor: they hold the same model (or every
 * rank says which tensor differs), they start from rank 0's state, and each step adds the same
 * reduced gradients. Nothing compares parameters later on: a rank that changes its own by other
 * means stays different.
 */
#include "ddp/distributed_data_parallel.h"

#include <string.h>

#include "common/base/memory.h"

// Tensors of at most this many bytes together travel in one broadcast. Small enough not to show in
// the peak of memory (PyTorch takes 250 MiB), large enough that what remains costs its bytes, not
// its calls.
enum { STAGING_BYTES = 1 << 20 };

typedef struct Ddp {
    ProcessGroup *group; // not owned
    DdpConfig config;
    Reducer *reducer;
    NamedTensors buffers;
    Device *device;
    char *staging; // [staging_bytes], device memory
    size_t staging_bytes;
} Ddp;

DdpConfig ddp_config_default(void) {
    return (DdpConfig){.bucket_cap_mb = -1, .overlap = true, .broadcast_buffers = true};
}

// ---- do all ranks hold the same model? ------------------------------------------------------

enum { DESCRIPTION_MAX = MODULE_PATH + 160 };

typedef struct Text {
    char *bytes; // with a '\0' at the end
    size_t length;
} Text;

// One line per tensor: "fc1.weight [64, 10]", and what is unusual about it.
static void describe_tensors(Module *module, int which, const char *kind, FILE *stream) {
    NamedTensors tensors = module_tensors(module, which);
    for (size_t i = 0; i < tensors.count; i++) {
        const Tensor *tensor = tensors.items[i].tensor;
        bool frozen = which == MODULE_PARAMETERS && !tensor->requires_grad;
        char shape[112];
        fprintf(stream, "%s%s %s%s%s\n", kind, tensors.items[i].name,
                tensor_describe(tensor, shape, sizeof shape),
                tensor->dtype == DTYPE_F32 ? "" : " I64", frozen ? " without gradient" : "");
    }
    named_tensors_free(&tensors);
}

static Text describe_model(Module *module) {
    Text text = {0};
    FILE *stream = open_memstream(&text.bytes, &text.length);
    CHECK(stream, "open_memstream failed");
    describe_tensors(module, MODULE_PARAMETERS, "", stream);
    describe_tensors(module, MODULE_BUFFERS, "buffer ", stream);
    CHECK(fclose(stream) == 0, "out of memory while describing a model");
    return text;
}

static int64_t hash(const Text *text) { // FNV-1a
    uint64_t value = 14695981039346656037u;
    for (size_t i = 0; i < text->length; i++)
        value = (value ^ (unsigned char)text->bytes[i]) * 1099511628211u;
    return (int64_t)value;
}

// The first line of text, or "nothing" at its end.
static const char *copy_line(const char *text, char line[DESCRIPTION_MAX]) {
    if (!*text) return "nothing";
    snprintf(line, DESCRIPTION_MAX, "%.*s", (int)strcspn(text, "\n"), text);
    return line;
}

// Some rank's text differs from rank 0's: names the first such rank, and the first line that
// differs. all: [size, stride], each text ended by a '\0'.
static int name_difference(const char *all, size_t stride, int size, Error *err) {
    int rank = 1;
    while (rank < size - 1 && strcmp(all, all + (size_t)rank * stride) == 0) rank++;
    const char *theirs = all + (size_t)rank * stride;
    size_t line = 0; // where it begins, in both
    for (size_t i = 0; all[i] && all[i] == theirs[i]; i++)
        if (all[i] == '\n') line = i + 1;
    char one[DESCRIPTION_MAX], other[DESCRIPTION_MAX];
    return error_set(err, STATUS_FAILED,
                     "DDP expects same model across all ranks: rank %d has %s where rank 0 has %s",
                     rank, copy_line(theirs + line, one), copy_line(all + line, other));
}

// Shows all ranks all texts, of at most `longest` characters.
static int exchange_texts(ProcessGroup *group, const Text *text, size_t longest, Error *err) {
    size_t stride = longest + 1;
    char *mine = memory_zalloc(stride);
    char *all = memory_zalloc(stride * (size_t)pg_size(group));
    memcpy(mine, text->bytes, text->length);
    int status = pg_run(group, pg_all_gather(mine, all, stride, PG_U8), err);
    if (status == 0) status = name_difference(all, stride, pg_size(group), err);
    free(mine);
    free(all);
    return status;
}

enum { FACT_PARAMETERS, FACT_HASH, FACT_LENGTH, FACT_COUNT };

// facts: [size, FACT_COUNT]. Every rank compares all with rank 0, so every rank sees the error.
static int compare_facts(ProcessGroup *group, const int64_t *facts, const Text *text, Error *err) {
    bool equal = true;
    int64_t longest = 0;
    for (int rank = 0; rank < pg_size(group); rank++) {
        const int64_t *theirs = facts + rank * FACT_COUNT;
        if (theirs[FACT_PARAMETERS] != facts[FACT_PARAMETERS])
            return error_set(err, STATUS_FAILED,
                             "DDP expects same model across all ranks, but Rank 0 has %lld params, "
                             "while rank %d has inconsistent %lld params.",
                             (long long)facts[FACT_PARAMETERS], rank,
                             (long long)theirs[FACT_PARAMETERS]);
        equal = equal && theirs[FACT_HASH] == facts[FACT_HASH];
        if (theirs[FACT_LENGTH] > longest) longest = theirs[FACT_LENGTH];
    }
    return equal ? 0 : exchange_texts(group, text, (size_t)longest, err);
}

static int verify_model(Module *module, ProcessGroup *group, Error *err) {
    Text text = describe_model(module);
    NamedTensors parameters = module_tensors(module, MODULE_PARAMETERS);
    int64_t mine[FACT_COUNT] = {[FACT_PARAMETERS] = (int64_t)parameters.count,
                                [FACT_HASH] = hash(&text),
                                [FACT_LENGTH] = (int64_t)text.length};
    named_tensors_free(&parameters);
    int64_t *facts = memory_zalloc((size_t)pg_size(group) * sizeof mine);
    int status = pg_run(group, pg_all_gather(mine, facts, FACT_COUNT, PG_I64), err);
    if (status == 0) status = compare_facts(group, facts, &text, err);
    free(facts);
    free(text.bytes);
    return status;
}

// ---- rank 0's state for all -----------------------------------------------------------------

// Copies tensors [first, end) into the staging memory, or out of it.
static void copy_staged(const Ddp *ddp, const NamedTensors *tensors, size_t first, size_t end,
                        bool out) {
    char *staged = ddp->staging;
    for (size_t i = first; i < end; i++) {
        const Tensor *tensor = tensors->items[i].tensor;
        size_t bytes = tensor_bytes(tensor);
        if (out)
            device_copy(ddp->device, tensor->data, ddp->device, staged, bytes);
        else
            device_copy(ddp->device, staged, ddp->device, tensor->data, bytes);
        staged += bytes;
    }
}

// Whatever the dtype: bytes. Neighbours that fit into the staging memory together go together; a
// tensor that has no such neighbour goes from where it lies.
static int broadcast_tensors(const Ddp *ddp, const NamedTensors *tensors, Error *err) {
    size_t end;
    for (size_t first = 0; first < tensors->count; first = end) {
        const Tensor *alone = tensors->items[first].tensor;
        size_t bytes = tensor_bytes(alone);
        for (end = first + 1; end < tensors->count; end++) {
            size_t more = tensor_bytes(tensors->items[end].tensor);
            if (bytes + more > ddp->staging_bytes) break;
            bytes += more;
        }
        bool staged = end > first + 1;
        if (staged && pg_rank(ddp->group) == 0) copy_staged(ddp, tensors, first, end, false);
        void *memory = staged ? ddp->staging : alone->data;
        if (pg_run(ddp->group, pg_broadcast(memory, bytes, PG_U8, 0), err)) return -1;
        if (staged && pg_rank(ddp->group) != 0) copy_staged(ddp, tensors, first, end, true);
    }
    return 0;
}

static void set_staging(Ddp *ddp, const NamedTensors *for_these) {
    device_free(ddp->device, ddp->staging, ddp->staging_bytes);
    size_t bytes = 0;
    for (size_t i = 0; i < for_these->count; i++) bytes += tensor_bytes(for_these->items[i].tensor);
    ddp->staging_bytes = bytes < STAGING_BYTES ? bytes : STAGING_BYTES;
    ddp->staging = bytes ? device_alloc(ddp->device, ddp->staging_bytes) : NULL;
}

static int broadcast_state(Ddp *ddp, Module *module, Error *err) {
    NamedTensors state = module_tensors(module, MODULE_STATE);
    if (state.count) ddp->device = state.items[0].tensor->device;
    set_staging(ddp, &state);
    int status = broadcast_tensors(ddp, &state, err);
    set_staging(ddp, &ddp->buffers); // from now on only they are broadcast, before every forward
    named_tensors_free(&state);
    return status;
}

// ---- the wrapper ----------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    Ddp *ddp = self->state;
    Error err = {0};
    if (tape->recording && reducer_prepare(ddp->reducer, &err))
        return tape_fail(tape, "DistributedDataParallel", "%s", err.message);
    if (ddp->config.broadcast_buffers) { // also when evaluating, as in PyTorch
        Phase phase = profile_enter(tape->profile, PHASE_REPLICATE);
        int status = ddp_sync_buffers(self, &err);
        profile_leave(tape->profile, phase);
        if (status) return tape_fail(tape, "DistributedDataParallel", "%s", err.message);
    }
    Tensor *y = module_forward(self->children[0], tape, x);
    reducer_forward_done(ddp->reducer);
    return y;
}

static void free_ddp(Ddp *ddp) {
    reducer_close(ddp->reducer);
    device_free(ddp->device, ddp->staging, ddp->staging_bytes);
    named_tensors_free(&ddp->buffers);
    free(ddp);
}

static void destroy(Module *self) {
    free_ddp(self->state);
}

Module *distributed_data_parallel(Module *module, ProcessGroup *group, const DdpConfig *config,
                                  Error *err) {
    Ddp *ddp = memory_zalloc(sizeof *ddp);
    ddp->group = group;
    ddp->config = *config;
    ddp->buffers = module_tensors(module, MODULE_BUFFERS);
    const ReducerConfig reducer = {.bucket_cap_mb = config->bucket_cap_mb,
                                   .overlap = config->overlap,
                                   .op = config->global_normalization ? PG_SUM : PG_AVG};
    if (verify_model(module, group, err) == 0 && broadcast_state(ddp, module, err) == 0)
        ddp->reducer = reducer_create(module, group, &reducer, err);
    if (!ddp->reducer) {
        free_ddp(ddp);
        return NULL;
    }
    Module *wrapper = module_create("DistributedDataParallel", forward);
    wrapper->state = ddp;
    wrapper->destroy = destroy;
    module_add(wrapper, "", module);
    return wrapper;
}

static Ddp *ddp_of(Module *wrapper) {
    CHECK(wrapper->forward == forward, "a %s is no DistributedDataParallel", wrapper->type);
    return wrapper->state;
}

const DdpConfig *ddp_config(Module *wrapper) {
    return &ddp_of(wrapper)->config;
}
Reducer *ddp_reducer(Module *wrapper) {
    return ddp_of(wrapper)->reducer;
}

int ddp_sync_buffers(Module *wrapper, Error *err) {
    Ddp *ddp = ddp_of(wrapper);
    return broadcast_tensors(ddp, &ddp->buffers, err);
}

int ddp_finish_backward(Module *wrapper, Profile *profile, Error *err) {
    return reducer_finish(ddp_of(wrapper)->reducer, profile, err);
}
