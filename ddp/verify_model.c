/* verify_model.c: each rank describes its model, one line per tensor, and the ranks compare.
 *
 * The ranks exchange hashes of the descriptions. If the hashes differ, they exchange the
 * descriptions, so that every rank, rank 0 included, names the first differing line.
 */
#include "ddp/verify_model.h"

#include <string.h>

#include "common/base/hash.h"
#include "common/base/memory.h"

// Writes one line per tensor: "fc1.weight [64, 10]", with its dtype unless float32, and " without
// gradient" if frozen.
static void describe_tensors(const NamedTensors *tensors, bool buffers, FILE *stream) {
    for (size_t i = 0; i < tensors->count; i++) {
        const Tensor *tensor = tensors->items[i].tensor;
        bool frozen = !buffers && !tensor->requires_grad;
        fprintf(stream, "%s%s %s%s%s\n", buffers ? "buffer " : "", tensors->items[i].name,
                tensor_describe(tensor).text, tensor->dtype == DTYPE_F32 ? "" : " I64",
                frozen ? " without gradient" : "");
    }
}

// Returns the description; the caller frees it.
static char *describe_model(const NamedTensors *parameters, const NamedTensors *buffers) {
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream, "open_memstream failed");
    describe_tensors(parameters, false, stream);
    describe_tensors(buffers, true, stream);
    CHECK(fclose(stream) == 0, "out of memory while describing a model");
    return text;
}

// Returns -1 with err naming the first rank whose text differs from rank 0's, and the first
// differing line. all: [size, stride], each text ended by a '\0'.
static int name_difference(const char *all, size_t stride, int size, Error *err) {
    int rank = 1;
    while (rank < size - 1 && strcmp(all, all + (size_t)rank * stride) == 0) rank++;
    const char *theirs = all + (size_t)rank * stride;
    size_t line = 0; // the differing line's offset in both texts
    for (size_t i = 0; all[i] && all[i] == theirs[i]; i++)
        if (all[i] == '\n') line = i + 1;
    const char *here = theirs[line] ? theirs + line : "nothing";
    const char *there = all[line] ? all + line : "nothing";
    return error_set(err, STATUS_FAILED,
                     "DDP expects same model across all ranks: rank %d has %.*s where rank 0 has "
                     "%.*s",
                     rank, (int)strcspn(here, "\n"), here, (int)strcspn(there, "\n"), there);
}

// Gathers all ranks' texts, of at most `longest` characters, and names the first difference.
static int exchange_texts(ProcessGroup *group, const char *text, size_t longest, Error *err) {
    size_t stride = longest + 1;
    char *mine = memory_zalloc(stride);
    char *all = memory_zalloc(stride * (size_t)pg_size(group));
    strcpy(mine, text);
    int status = pg_run(group, pg_all_gather(mine, all, stride, PG_U8), err);
    if (status == 0) status = name_difference(all, stride, pg_size(group), err);
    free(mine);
    free(all);
    return status;
}

enum { FACT_PARAMETERS, FACT_HASH, FACT_LENGTH, FACT_COUNT };

// facts: [size, FACT_COUNT]. Every rank compares all ranks with rank 0 and gets the same error.
static int compare_facts(ProcessGroup *group, const int64_t *facts, const char *text, Error *err) {
    bool equal = true;
    int64_t longest = 0;
    for (int rank = 0; rank < pg_size(group); rank++) {
        const int64_t *theirs = facts + (size_t)(rank * FACT_COUNT);
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

// Checks this rank's trainable parameters: there is one at least; all are on devices of one kind;
// none belongs to another wrapper (DistributedDataParallel sets on_ready, fully_shard sets shard).
static int check_trained(const NamedTensors *parameters, Error *err) {
    const NamedTensor *first = NULL;
    for (size_t i = 0; i < parameters->count; i++) {
        const NamedTensor *parameter = &parameters->items[i];
        if (parameter->tensor->on_ready || parameter->tensor->shard)
            return error_set(err, STATUS_FAILED, "%s is in another wrapper already (%s)",
                             parameter->name,
                             parameter->tensor->shard ? "fully_shard" : "DistributedDataParallel");
        if (!parameter->tensor->requires_grad) continue;
        if (!first) first = parameter;
        const Device *one = first->tensor->device, *other = parameter->tensor->device;
        if (one->kernels != other->kernels)
            return error_set(err, STATUS_FAILED,
                             "DistributedDataParallel needs all parameters on devices of one kind: "
                             "%s is on %s, %s is on %s",
                             first->name, one->name, parameter->name, other->name);
    }
    if (first) return 0;
    return error_set(err, STATUS_FAILED,
                     "DistributedDataParallel is not needed when a module doesn't have any "
                     "parameter that requires a gradient.");
}

int verify_model(const NamedTensors *parameters, const NamedTensors *buffers, ProcessGroup *group,
                 Error *err) {
    char *text = describe_model(parameters, buffers);
    size_t length = strlen(text);
    int64_t mine[FACT_COUNT] = {[FACT_PARAMETERS] = (int64_t)parameters->count,
                                [FACT_HASH] = (int64_t)hash_bytes(HASH_START, text, length),
                                [FACT_LENGTH] = (int64_t)length};
    int64_t *facts = memory_zalloc((size_t)pg_size(group) * sizeof mine);
    int status = pg_run(group, pg_all_gather(mine, facts, FACT_COUNT, PG_I64), err);
    if (status == 0) status = compare_facts(group, facts, text, err);
    if (status == 0) status = check_trained(parameters, err);
    free(facts);
    free(text);
    return status;
}
