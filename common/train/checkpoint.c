/* checkpoint.c: writing and reading the pair of files. */
#include "common/train/checkpoint.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/train/safetensors.h"

static const char FORMAT[] = "ddp.c checkpoint 1";

static const char *optimizer_kind(const Optimizer *optimizer) {
    return optimizer->config.kind == OPTIMIZER_ADAMW ? "adamw" : "sgd";
}

// "dir/last.safetensors" + "last.safetensors.40.optimizer" -> "dir/last.safetensors.40.optimizer"
static char *beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    return memory_format("%.*s%s", folder, path, name);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// ---- the optimizer's file ---------------------------------------------------------------------

// Describes the optimizer's tensors as entries; data is host memory of the caller's, one block
// each.
static SafeTensors describe_optimizer(const Optimizer *optimizer) {
    SafeTensors content = {0};
    size_t count = optimizer->parameters.count;
    content.entries = memory_zalloc((3 * count + 1) * sizeof *content.entries);
    for (size_t i = 0; i < count; i++) {
        const NamedTensor *parameter = &optimizer->parameters.items[i];
        for (int s = 0; s < 2; s++) {
            if (!optimizer->state[s][i]) continue;
            SafeEntry *entry = &content.entries[content.count++];
            *entry = (SafeEntry){.dtype = DTYPE_F32, .ndim = parameter->tensor->ndim};
            memcpy(entry->shape, parameter->tensor->shape, sizeof entry->shape);
            entry->bytes = tensor_bytes(parameter->tensor);
            snprintf(entry->name, sizeof entry->name, "%s.%s", parameter->name,
                     optimizer_state_name(optimizer, s));
        }
        SafeEntry *entry = &content.entries[content.count++];
        *entry = (SafeEntry){.dtype = DTYPE_I64, .bytes = sizeof(int64_t)};
        snprintf(entry->name, sizeof entry->name, "%s.step", parameter->name);
    }
    return content;
}

// Where entry number `n` of describe_optimizer lies in the optimizer.
static void *optimizer_memory(Optimizer *optimizer, size_t n, Device **device) {
    for (size_t i = 0; i < optimizer->parameters.count; i++) {
        *device = optimizer->parameters.items[i].tensor->device;
        for (int s = 0; s < 2; s++)
            if (optimizer->state[s][i] && n-- == 0) return optimizer->state[s][i];
        *device = NULL; // step counts are the host's
        if (n-- == 0) return &optimizer->steps[i];
    }
    CHECK(false, "there is no optimizer tensor %zu", n);
    return NULL;
}

static int save_optimizer(const char *path, const Optimizer *optimizer, Error *err) {
    SafeTensors content = describe_optimizer(optimizer);
    size_t total = 0;
    for (size_t n = 0; n < content.count; n++) total += content.entries[n].bytes;
    char *host = memory_zalloc(total + 1), *at = host;
    for (size_t n = 0; n < content.count; n++) {
        Device *device;
        const void *memory = optimizer_memory((Optimizer *)optimizer, n, &device);
        device_copy(NULL, at, device, memory, content.entries[n].bytes);
        content.entries[n].data = at;
        at += content.entries[n].bytes;
    }
    SafeMeta meta = {"optimizer", ""};
    snprintf(meta.value, sizeof meta.value, "%s", optimizer_kind(optimizer));
    content.meta = &meta;
    content.meta_count = 1;
    int failed = safetensors_write(path, &content, err);
    free(host);
    free(content.entries);
    return failed;
}

static int check_optimizer(const char *path, const SafeTensors *file, const SafeTensors *wanted,
                           const Optimizer *optimizer, Error *err) {
    const char *kind = safetensors_meta(file, "optimizer");
    if (!kind || strcmp(kind, optimizer_kind(optimizer)) != 0)
        return error_set(err, STATUS_USAGE, "%s: was written by optimizer %s, this run uses %s",
                         path, kind ? kind : "(none)", optimizer_kind(optimizer));
    if (file->count != wanted->count)
        return error_set(err, STATUS_USAGE, "%s: holds %zu tensors, the optimizer has %zu", path,
                         file->count, wanted->count);
    for (size_t n = 0; n < wanted->count; n++) {
        const SafeEntry *want = &wanted->entries[n];
        const SafeEntry *have = safetensors_find(file, want->name);
        if (!have || have->dtype != want->dtype || have->bytes != want->bytes)
            return error_set(err, STATUS_USAGE, "%s: tensor %s is missing or differs in size", path,
                             want->name);
    }
    return 0;
}

static void apply_optimizer(const SafeTensors *file, const SafeTensors *wanted,
                            Optimizer *optimizer) {
    for (size_t n = 0; n < wanted->count; n++) {
        Device *device;
        void *memory = optimizer_memory(optimizer, n, &device);
        const SafeEntry *have = safetensors_find(file, wanted->entries[n].name);
        device_copy(device, memory, NULL, have->data, have->bytes);
    }
}

// ---- the pair ---------------------------------------------------------------------------------

enum { FIELDS = 5, META = FIELDS + 4 };
static const char *const FIELD_NAMES[FIELDS] = {"step", "epoch", "batch", "seed", "global_batch"};

static uint64_t *field(Progress *progress, int i) {
    uint64_t *fields[FIELDS] = {&progress->step, &progress->epoch, &progress->batch,
                                &progress->seed, &progress->global_batch};
    return fields[i];
}

static void set_meta(SafeMeta *meta, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void set_meta(SafeMeta *meta, const char *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    snprintf(meta->key, sizeof meta->key, "%s", key);
    vsnprintf(meta->value, sizeof meta->value, format, arguments);
    va_end(arguments);
}

static void describe_progress(Progress progress, const char *optimizer_file, SafeMeta *meta) {
    set_meta(&meta[0], "format", "pt"); // what PyTorch's own writers say
    set_meta(&meta[1], "checkpoint", "%s", FORMAT);
    set_meta(&meta[2], "optimizer_file", "%s", optimizer_file);
    set_meta(&meta[3], "best", "%a", progress.best);
    for (int i = 0; i < FIELDS; i++)
        set_meta(&meta[4 + i], FIELD_NAMES[i], "%" PRIu64, *field(&progress, i));
}

static int parse_progress(const char *path, const SafeTensors *file, Progress *progress,
                          Error *err) {
    const char *format = safetensors_meta(file, "checkpoint");
    if (!format || strcmp(format, FORMAT) != 0)
        return error_set(err, STATUS_USAGE,
                         "%s: is no checkpoint to resume from (weights alone go to --load-init)",
                         path);
    const char *best = safetensors_meta(file, "best");
    if (!best) return error_set(err, STATUS_USAGE, "%s: the metadata lacks \"best\"", path);
    progress->best = strtod(best, NULL);
    for (int i = 0; i < FIELDS; i++) {
        const char *text = safetensors_meta(file, FIELD_NAMES[i]);
        char *end;
        if (!text)
            return error_set(err, STATUS_USAGE, "%s: the metadata lacks \"%s\"", path,
                             FIELD_NAMES[i]);
        *field(progress, i) = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end != '\0')
            return error_set(err, STATUS_USAGE, "%s: \"%s\" is not a number: %s", path,
                             FIELD_NAMES[i], text);
    }
    return 0;
}

// The path of the optimizer file that the checkpoint at `path` names; NULL if there is none.
static char *optimizer_path_of(const char *path) {
    SafeTensors file = {0};
    if (safetensors_read(path, &file, NULL) != 0) return NULL;
    const char *name = safetensors_meta(&file, "optimizer_file");
    char *found = name && !strchr(name, '/') ? beside(path, name) : NULL;
    safetensors_free(&file);
    return found;
}

int checkpoint_save(const char *path, Module *model, const Optimizer *optimizer,
                    const Progress *progress, Error *err) {
    SafeMeta meta[META];
    char *name = memory_format("%s.%" PRIu64 ".optimizer", base_name(path), progress->step);
    char *current = beside(path, name);
    char *previous = optimizer_path_of(path);
    describe_progress(*progress, name, meta);
    int failed = save_optimizer(current, optimizer, err);
    if (!failed) failed = safetensors_save_module(path, model, meta, META, err);
    if (!failed && previous && strcmp(previous, current) != 0) unlink(previous);
    free(name);
    free(current);
    free(previous);
    return failed;
}

static int load_pair(const char *path, const SafeTensors *weights, Module *model,
                     Optimizer *optimizer, Progress *progress, Error *err) {
    Progress read;
    if (parse_progress(path, weights, &read, err) != 0) return -1;
    const char *name = safetensors_meta(weights, "optimizer_file");
    if (!name || strchr(name, '/'))
        return error_set(err, STATUS_USAGE, "%s: names no optimizer file beside it", path);
    char *optimizer_path = beside(path, name);
    SafeTensors state = {0}, wanted = describe_optimizer(optimizer);
    int failed = safetensors_read(optimizer_path, &state, err);
    if (!failed) failed = check_optimizer(optimizer_path, &state, &wanted, optimizer, err);
    if (!failed) failed = safetensors_apply_module(weights, path, model, err);
    if (!failed) {
        apply_optimizer(&state, &wanted, optimizer);
        *progress = read;
    }
    safetensors_free(&state);
    free(wanted.entries);
    free(optimizer_path);
    return failed;
}

int checkpoint_load(const char *path, Module *model, Optimizer *optimizer, Progress *progress,
                    Error *err) {
    SafeTensors weights = {0};
    if (safetensors_read(path, &weights, err) != 0) return -1;
    int failed = load_pair(path, &weights, model, optimizer, progress, err);
    safetensors_free(&weights);
    return failed;
}
