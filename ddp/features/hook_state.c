/* hook_state.c: gathers a hook's state from all ranks and restores it. */
#include "ddp/features/hook_state.h"

#include <string.h>

#include "common/base/format.h"
#include "common/base/memory.h"

// Describes an own tensor as it is saved: [W, ...], all ranks' tensors stacked.
static SafeEntry stack(const SafeEntry *entry, size_t ranks) {
    CHECK(entry->ndim < TENSOR_MAX_DIMS, "%s has too many dimensions", entry->name);
    SafeEntry stacked = *entry;
    stacked.ndim = entry->ndim + 1;
    stacked.shape[0] = ranks;
    memcpy(stacked.shape + 1, entry->shape, (size_t)entry->ndim * sizeof *entry->shape);
    stacked.bytes = ranks * entry->bytes;
    return stacked;
}

// Returns one block of memory for all ranks' own tensors.
static char *room_for_all(const HookState *state, size_t ranks) {
    size_t bytes = 0;
    for (size_t i = 0; i < state->count; i++)
        if (state->tensors[i].own) bytes += ranks * state->tensors[i].entry.bytes;
    return memory_zalloc(bytes);
}

int hook_state_gather(void *hook_state, SafeTensors *content, Error *err) {
    const HookState *state = hook_state;
    ProcessGroup *group = state->group;
    size_t ranks = (size_t)pg_size(group);
    bool root = pg_rank(group) == 0;
    *content = (SafeTensors){.entries = memory_zalloc((state->count + 1) * sizeof(SafeEntry)),
                             .buffer = root ? room_for_all(state, ranks) : NULL};
    char *at = content->buffer;
    int failed = 0;
    for (size_t i = 0; i < state->count && !failed; i++) {
        const HookTensor *tensor = &state->tensors[i];
        SafeEntry entry = tensor->own ? stack(&tensor->entry, ranks) : tensor->entry;
        entry.data = tensor->own ? at : tensor->memory;
        if (tensor->own)
            failed =
                pg_run(group, pg_gather(tensor->memory, at, tensor->entry.bytes, PG_U8, 0), err);
        if (!root) continue;
        if (tensor->own) at += entry.bytes;
        content->entries[content->count++] = entry;
    }
    if (failed) safetensors_free(content);
    return failed;
}

static bool same_shape(const SafeEntry *a, const SafeEntry *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

// Sets *ranks to the number of ranks that saved the content; 0 if it has no own tensor.
static int check_content(const HookState *state, const SafeTensors *content, const char *path,
                         size_t *ranks, Error *err) {
    *ranks = 0;
    for (size_t i = 0; i < state->count; i++) {
        const HookTensor *tensor = &state->tensors[i];
        const SafeEntry *saved = safetensors_find(content, tensor->entry.name);
        if (!saved)
            return error_set(err, STATUS_USAGE, "%s: %s of %s is missing", path, tensor->entry.name,
                             state->hook_name);
        if (tensor->own && *ranks == 0 && saved->ndim > 0) *ranks = saved->shape[0];
        SafeEntry wanted = tensor->own ? stack(&tensor->entry, *ranks) : tensor->entry;
        if (!same_shape(saved, &wanted) || (tensor->own && *ranks == 0))
            return error_set(err, STATUS_USAGE,
                             "%s: %s has not the shape that %s has in this run: was it configured "
                             "alike?",
                             path, saved->name, state->hook_name);
    }
    if (content->count == state->count) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: holds %zu tensor%s of %s, which has %zu in this run: was it configured "
                     "alike?",
                     path, content->count, format_s(content->count), state->hook_name,
                     state->count);
}

// Copies this rank's part of the content. Own tensors of another number of ranks become zeros.
static void apply_content(const HookState *state, const SafeTensors *content, bool same_ranks) {
    size_t rank = (size_t)pg_rank(state->group);
    for (size_t i = 0; i < state->count; i++) {
        const HookTensor *tensor = &state->tensors[i];
        size_t bytes = tensor->entry.bytes;
        const char *saved = safetensors_find(content, tensor->entry.name)->data;
        if (tensor->own) saved += same_ranks ? rank * bytes : 0;
        if (!tensor->own || same_ranks)
            device_copy(tensor->device, tensor->memory, NULL, saved, bytes);
        else if (tensor->device)
            device_kernels(tensor->device)
                ->elementwise->fill(tensor->memory, 0.0f, bytes / sizeof(float));
        else
            memset(tensor->memory, 0, bytes);
    }
}

int hook_state_restore(void *hook_state, const char *path, const SafeTensors *content, RunLog *log,
                       Error *err) {
    const HookState *state = hook_state;
    if (content->count == 0) {
        log_say(log,
                "%s holds no state of %s, which starts anew: the run continues, but not bit "
                "for bit",
                path, state->hook_name);
        return 0;
    }
    size_t ranks = (size_t)pg_size(state->group), saved_ranks;
    int failed = check_content(state, content, path, &saved_ranks, err);
    bool same_ranks = saved_ranks == ranks || saved_ranks == 0;
    if (!failed) apply_content(state, content, same_ranks);
    if (!failed && !same_ranks)
        log_say(log,
                "%s: %zu rank%s saved state of their own for %s, and this run has %zu: that state "
                "starts at zero; the run continues, but not bit for bit",
                path, saved_ranks, format_s(saved_ranks), state->hook_name, ranks);
    return failed;
}
