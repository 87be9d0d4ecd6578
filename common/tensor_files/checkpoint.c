/* checkpoint.c: writes and reads the pair of files.
 *
 * The order of a save; after each step the old pair or the new one is complete:
 *   1. the optimizer's file, with the strategy's tensors, under a name unique to its contents
 *   2. a second name (a hard link) for the FILE to be replaced
 *   3. the new FILE, renamed over the old one
 *   4. the second name becomes `previous`
 *   5. optimizer files that neither FILE nor `previous` names are removed
 * A file system without hard links keeps no previous checkpoint; nothing else changes. Nor does a
 * FILE that is a symbolic link: the pair lies beside its target, which may be another folder.
 */
#include "common/tensor_files/checkpoint.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"

static const char FORMAT[] = "ddp.c checkpoint 1";

// "dir/last.safetensors" + "x.optimizer" -> "dir/x.optimizer"
static char *beside(const char *path, const char *name) {
    return memory_format("%.*s%s", (int)(basename(path) - path), path, name);
}

__attribute__((format(printf, 3, 4))) static void set_meta(SafeMeta *meta, const char *key,
                                                           const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    snprintf(meta->key, sizeof meta->key, "%s", key);
    vsnprintf(meta->value, sizeof meta->value, format, arguments);
    va_end(arguments);
}

// ---- the optimizer's file ---------------------------------------------------------------------

typedef struct Memory {
    Device *device; // NULL: the host's
    void *data;
    size_t offset, bytes; // its range in the complete tensor
} Memory;

// Returns the optimizer's tensors as entries without data (safetensors_free). memory: receives the
// optimizer's memory of each entry, freed by the caller.
static SafeTensors describe_optimizer(const Optimizer *optimizer, Memory **memory) {
    SafeTensors content = {0};
    size_t count = optimizer->parameters.count;
    content.entries = memory_zalloc(3 * count * sizeof *content.entries);
    *memory = memory_zalloc(3 * count * sizeof **memory);
    for (size_t i = 0; i < count; i++) {
        const NamedTensor *parameter = &optimizer->parameters.items[i];
        const Tensor *tensor = parameter->tensor, whole = tensor_whole(tensor);
        const OptimizerPart part = optimizer_part(optimizer, i);
        const size_t first = tensor_first(tensor) + part.first;
        for (int s = 0; s < 2; s++) {
            if (!optimizer->state[s][i]) continue;
            (*memory)[content.count] = (Memory){tensor->device, optimizer->state[s][i],
                                                first * sizeof(float), part.count * sizeof(float)};
            SafeEntry *entry = &content.entries[content.count++];
            *entry =
                (SafeEntry){.dtype = DTYPE_F32, .ndim = whole.ndim, .bytes = tensor_bytes(&whole)};
            memcpy(entry->shape, whole.shape, sizeof entry->shape);
            snprintf(entry->name, sizeof entry->name, "%s.%s", parameter->name,
                     optimizer_state_name(optimizer, s));
        }
        (*memory)[content.count] = (Memory){NULL, &optimizer->steps[i], 0, sizeof(int64_t)};
        SafeEntry *entry = &content.entries[content.count++];
        *entry = (SafeEntry){.dtype = DTYPE_I64, .bytes = sizeof(int64_t)};
        snprintf(entry->name, sizeof entry->name, "%s.step", parameter->name);
    }
    return content;
}

static const char OPTIMIZER[] = "optimizer/"; // see checkpoint_save

// Returns a host copy of the optimizer's tensors (safetensors_free). The strategy's state has the
// complete tensors of a sharded optimizer.
static SafeTensors snapshot_optimizer(const Optimizer *optimizer, const SafeTensors *state) {
    Memory *memory;
    SafeTensors content = describe_optimizer(optimizer, &memory);
    size_t bytes = 0;
    for (size_t n = 0; n < content.count; n++) {
        SafeEntry *entry = &content.entries[n];
        char path[sizeof entry->name + sizeof OPTIMIZER];
        snprintf(path, sizeof path, "%s%s", OPTIMIZER, entry->name);
        const SafeEntry *whole = safetensors_find(state, path);
        CHECK(whole || memory[n].bytes == entry->bytes, "%s: only a shard is in the state",
              entry->name);
        if (whole)
            entry->data = whole->data;
        else if (!memory[n].device || device_is_addressable(memory[n].device))
            entry->data = memory[n].data;
        else
            bytes += entry->bytes; // copied below
    }
    char *at = content.buffer = memory_zalloc(bytes);
    for (size_t n = 0; n < content.count; n++) {
        SafeEntry *entry = &content.entries[n];
        if (entry->data) continue;
        device_copy(NULL, at, memory[n].device, memory[n].data, entry->bytes);
        entry->data = at;
        at += entry->bytes;
    }
    free(memory);
    content.meta = memory_zalloc(sizeof *content.meta);
    content.meta_count = 1;
    set_meta(content.meta, "optimizer", "%s", optimizer_name(optimizer));
    return content;
}

static int check_optimizer(const char *path, const SafeTensors *file, const SafeTensors *wanted,
                           const Optimizer *optimizer, Error *err) {
    const char *kind = safetensors_meta(file, "optimizer");
    if (!kind || strcmp(kind, optimizer_name(optimizer)) != 0)
        return error_set(err, STATUS_USAGE, "%s: was written by optimizer %s, this run uses %s",
                         path, kind ? kind : "(none)", optimizer_name(optimizer));
    if (file->count != wanted->count)
        return error_set(err, STATUS_USAGE, "%s: holds %zu tensor%s, the optimizer has %zu", path,
                         file->count, format_s(file->count), wanted->count);
    for (size_t n = 0; n < wanted->count; n++) {
        const SafeEntry *want = &wanted->entries[n];
        const SafeEntry *have = safetensors_find(file, want->name);
        if (!have || have->dtype != want->dtype || have->bytes != want->bytes)
            return error_set(err, STATUS_USAGE, "%s: tensor %s is missing or differs in size", path,
                             want->name);
    }
    return 0;
}

// ---- the strategy's tensors in that file ------------------------------------------------------

static const char STRATEGY[] = "strategy/"; // not the beginning of a parameter's name

static bool begins_with(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void append_strategy(SafeTensors *content, const SafeTensors *state) {
    content->entries =
        memory_grow(content->entries, content->count + state->count, sizeof *content->entries);
    for (size_t i = 0; i < state->count; i++) {
        const char *name = state->entries[i].name;
        if (begins_with(name, OPTIMIZER) || begins_with(name, SAFE_MODEL)) continue;
        SafeEntry *entry = &content->entries[content->count++];
        *entry = state->entries[i];
        int length =
            snprintf(entry->name, sizeof entry->name, "%s%s", STRATEGY, state->entries[i].name);
        CHECK((size_t)length < sizeof entry->name, "%s: too long a name", state->entries[i].name);
    }
}

// Moves the strategy's tensors from the file's entries to the result, with their original names.
// Their data stays in the file's buffer.
static SafeTensors split_strategy(SafeTensors *file) {
    SafeTensors state = {.entries = memory_zalloc(file->count * sizeof *state.entries)};
    size_t prefix = sizeof STRATEGY - 1, kept = 0;
    for (size_t i = 0; i < file->count; i++) {
        SafeEntry *entry = &file->entries[i];
        if (strncmp(entry->name, STRATEGY, prefix) != 0) {
            file->entries[kept++] = *entry;
            continue;
        }
        memmove(entry->name, entry->name + prefix, strlen(entry->name + prefix) + 1);
        state.entries[state.count++] = *entry;
    }
    file->count = kept;
    return state;
}

// ---- Progress ---------------------------------------------------------------------------------

enum { FIELDS = 8, META = FIELDS + 8 + PROGRESS_NOTES };
static const char *const FIELD_NAMES[FIELDS] = {"step",         "epoch",   "batch",    "seed",
                                                "global_batch", "samples", "shuffled", "devices"};

static const char *const NOTE_NAMES[PROGRESS_NOTES] = {
    "lr", "schedule", "momentum", "weight_decay", "betas", "total_steps", "sampler_seed", "text"};

static uint64_t *field(Progress *progress, int i) {
    uint64_t *fields[FIELDS] = {&progress->step,     &progress->epoch,        &progress->batch,
                                &progress->seed,     &progress->global_batch, &progress->samples,
                                &progress->shuffled, &progress->devices};
    return fields[i];
}

static void describe_progress(Progress progress, const char *optimizer_file, const char *digits,
                              SafeMeta *meta) {
    set_meta(&meta[0], "format", "pt"); // as PyTorch's writers do
    set_meta(&meta[1], "checkpoint", "%s", FORMAT);
    set_meta(&meta[2], "optimizer_file", "%s", optimizer_file);
    set_meta(&meta[3], "optimizer_crc32", "%s", digits);
    set_meta(&meta[4], "best", "%a", progress.best);
    for (int i = 0; i < FIELDS; i++)
        set_meta(&meta[5 + i], FIELD_NAMES[i], "%" PRIu64, *field(&progress, i));
    set_meta(&meta[5 + FIELDS], "amp", "%s", progress.amp);
    set_meta(&meta[6 + FIELDS], "scale", "%a", progress.scale);
    set_meta(&meta[7 + FIELDS], "growth_tracker", "%" PRIu64, progress.growth_tracker);
    for (int i = 0; i < PROGRESS_NOTES; i++)
        set_meta(&meta[8 + FIELDS + i], NOTE_NAMES[i], "%s", progress.notes[i]);
}

// Sets *whole or, if whole is NULL, *real to the metadata's number.
static int parse_number(const char *path, const SafeTensors *file, const char *key, uint64_t *whole,
                        double *real, Error *err) {
    const char *text = safetensors_meta(file, key);
    if (!text) return error_set(err, STATUS_USAGE, "%s: the metadata lacks \"%s\"", path, key);
    const char *end = text;
    bool found;
    if (whole) {
        found = format_read_number(&end, UINT64_MAX, whole);
    } else {
        *real = strtod(text, (char **)&end);
        found = end != text && !isnan(*real);
    }
    if (found && *end == '\0') return 0;
    return error_set(err, STATUS_USAGE, "%s: \"%s\" is not a number: %s", path, key, text);
}

static int parse_progress(const char *path, const SafeTensors *file, Progress *progress,
                          Error *err) {
    if (parse_number(path, file, "best", NULL, &progress->best, err) != 0) return -1;
    for (int i = 0; i < PROGRESS_NOTES; i++) { // older checkpoints have none
        const char *note = safetensors_meta(file, NOTE_NAMES[i]);
        snprintf(progress->notes[i], sizeof progress->notes[i], "%s", note ? note : "");
    }
    for (int i = 0; i < FIELDS; i++)
        if (parse_number(path, file, FIELD_NAMES[i], field(progress, i), NULL, err) != 0) return -1;
    const char *amp = safetensors_meta(file, "amp");
    snprintf(progress->amp, sizeof progress->amp, "%s", amp ? amp : "none");
    if (!amp) return 0; // of before --amp: float32
    if (parse_number(path, file, "scale", NULL, &progress->scale, err) != 0) return -1;
    return parse_number(path, file, "growth_tracker", &progress->growth_tracker, NULL, err);
}

// ---- files of a checkpoint --------------------------------------------------------------------

// Returns the name of the optimizer file of the checkpoint at `path`, freed by the caller; NULL if
// it has none or cannot be read.
static char *optimizer_of(const char *path) {
    SafeTensors file = {0};
    if (safetensors_read_header(path, &file, NULL) != 0) return NULL;
    const char *name = safetensors_meta(&file, "optimizer_file");
    char *found = name && !strchr(name, '/') ? memory_format("%s", name) : NULL;
    safetensors_free(&file);
    return found;
}

// Returns the length of the entry's prefix FILE.STEP.CHECKSUM.optimizer; 0 if it has none.
static size_t optimizer_name_length(const char *file, const char *entry) {
    size_t length = strlen(file);
    int checksum = 0, end = 0; // where they begin and end, after FILE
    if (strncmp(entry, file, length) != 0) return 0;
    sscanf(entry + length, ".%*[0-9].%n%*8[0-9a-f].optimizer%n", &checksum, &end);
    return end - checksum == SAFE_DIGITS + (int)strlen(".optimizer") ? length + (size_t)end : 0;
}

// Removes the optimizer files of `path` except `keep` and `keep_too`, and temporary files of killed
// writers of optimizer files.
static void sweep(const char *path, const char *keep, const char *keep_too) {
    char *folder = beside(path, ".");
    DIR *entries = opendir(folder);
    free(folder);
    if (!entries) return; // keeps the files of an unreadable folder
    for (struct dirent *entry; (entry = readdir(entries));) {
        const char *name = entry->d_name;
        size_t length = optimizer_name_length(basename(path), name);
        if (length == 0 || strcmp(name, keep) == 0 || strcmp(name, keep_too) == 0) continue;
        char *whole = beside(path, name);
        if (name[length] == '\0') unlink(whole);
        whole[strlen(whole) - strlen(name) + length] = '\0';
        if (name[length] != '\0') file_sweep(whole);
        free(whole);
    }
    closedir(entries);
}

// Removes files that neither checkpoint needs, after a successful or failed save.
static void tidy(const char *path, const char *previous) {
    char *needed = optimizer_of(path), *needed_too = previous ? optimizer_of(previous) : NULL;
    // A checkpoint that cannot be read now may be readable later: its files are kept.
    bool known = (needed || !file_exists("%s", path)) &&
                 (needed_too || !previous || !file_exists("%s", previous));
    if (known) sweep(path, needed ? needed : "", needed_too ? needed_too : "");
    free(needed);
    free(needed_too);
}

// Creates a hard link to the file at `path`, named as a temporary file of `previous`, and returns
// its path, freed by the caller. NULL if the file does not exist or links are not supported.
static char *hold(const char *path, const char *previous) {
    file_sweep(previous);
    char *second = memory_format("%s.%ld.0.tmp", previous, (long)getpid());
    if (link(path, second) == 0) return second;
    free(second);
    return NULL;
}

// ---- the pair ---------------------------------------------------------------------------------

int checkpoint_save(const char *path, const char *previous, Module *model,
                    const Optimizer *optimizer, const SafeTensors *state, const Progress *progress,
                    Error *err) {
    SafeMeta meta[META];
    char digits[SAFE_DIGITS + 1], target[FILE_PATH_MAX];
    if (file_follow_links(path, target, err) != 0) return -1;
    if (strcmp(target, path) != 0) previous = NULL;
    path = target;
    SafeTensors content = snapshot_optimizer(optimizer, state);
    append_strategy(&content, state);
    safetensors_checksum(&content, digits);
    char *name =
        memory_format("%s.%" PRIu64 ".%s.optimizer", basename(path), progress->step, digits);
    char *optimizer_path = beside(path, name);
    describe_progress(*progress, name, digits, meta);
    char *held = previous ? hold(path, previous) : NULL;
    int failed = safetensors_write(optimizer_path, &content, err);
    SafeTensors whole = *state;
    whole.meta = meta;
    whole.meta_count = META;
    if (!failed) failed = safetensors_save_whole(path, model, false, &whole, err);
    if (held && !failed) rename(held, previous);
    if (held) unlink(held); // after a failure, and where `previous` is the same file already
    free(held);
    tidy(path, previous);
    safetensors_free(&content);
    free(optimizer_path);
    free(name);
    return failed;
}

void checkpoint_remove(const char *path) {
    unlink(path);
    sweep(path, "", "");
}

typedef struct Pair {
    SafeTensors weights, state;
    SafeTensors strategy; // its data is in state's buffer
    char *optimizer_path;
    Progress progress;
} Pair;

static void pair_free(Pair *pair) {
    safetensors_free(&pair->weights);
    safetensors_free(&pair->state);
    safetensors_free(&pair->strategy);
    free(pair->optimizer_path);
}

// Returns the path of the optimizer's file: beside FILE, or if FILE is a symbolic link, beside the
// link or its target.
static char *find_optimizer(const char *path, const char *name) {
    char target[FILE_PATH_MAX];
    char *found = beside(path, name);
    if (file_exists("%s", found) || file_follow_links(path, target, NULL) != 0) return found;
    free(found);
    return beside(target, name);
}

// Reads the optimizer's file and checks it against FILE's metadata. 0, or -1 with err filled.
static int read_state(const char *path, Pair *pair, Error *err) {
    const char *name = safetensors_meta(&pair->weights, "optimizer_file");
    const char *digits = safetensors_meta(&pair->weights, "optimizer_crc32");
    if (!name || !*name || strchr(name, '/') || !digits ||
        !safetensors_meta(&pair->weights, "crc32"))
        return error_set(err, STATUS_USAGE,
                         "%s: names no optimizer file beside it, or lacks a checksum", path);
    pair->optimizer_path = find_optimizer(path, name);
    if (safetensors_read(pair->optimizer_path, &pair->state, err) != 0) return -1;
    // FILE's checksum covers its header, which contains the other file's checksum.
    pair->progress.checksum =
        (uint32_t)strtoul(safetensors_meta(&pair->weights, "crc32"), NULL, 16);
    pair->strategy = split_strategy(&pair->state);
    const char *found = safetensors_meta(&pair->state, "crc32");
    if (found && strcmp(found, digits) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: is not the file that was saved with %s: its checksum is %s, not %s",
                     pair->optimizer_path, basename(path), found ? found : "missing", digits);
}

// Reads a pair; fills err unless it is complete. The caller frees the pair in either case.
static CheckpointState read_pair(const char *path, Pair *pair, Error *err) {
    *pair = (Pair){0};
    if (safetensors_read(path, &pair->weights, err) != 0) return CHECKPOINT_DAMAGED;
    const char *format = safetensors_meta(&pair->weights, "checkpoint");
    if (!format || strcmp(format, FORMAT) != 0) {
        error_set(err, STATUS_USAGE,
                  "%s: is no checkpoint to resume from (weights alone go to --load-init)", path);
        return CHECKPOINT_OTHER;
    }
    if (parse_progress(path, &pair->weights, &pair->progress, err) != 0) return CHECKPOINT_DAMAGED;
    return read_state(path, pair, err) == 0 ? CHECKPOINT_WHOLE : CHECKPOINT_DAMAGED;
}

CheckpointState checkpoint_check(const char *path, Progress *progress, Error *err) {
    Pair pair;
    CheckpointState state = read_pair(path, &pair, err);
    *progress = pair.progress;
    pair_free(&pair);
    return state;
}

// Checks everything before it changes the first tensor. 0, or -1 with err filled.
static int apply_pair(const Pair *pair, const char *path, Module *model, Optimizer *optimizer,
                      Error *err) {
    // Weights first: for another model's checkpoint their error is the clearer one.
    if (safetensors_check_module(&pair->weights, path, model, err) != 0) return -1;
    Memory *memory;
    SafeTensors wanted = describe_optimizer(optimizer, &memory);
    int failed = check_optimizer(pair->optimizer_path, &pair->state, &wanted, optimizer, err);
    if (!failed) safetensors_apply_module(&pair->weights, model);
    for (size_t n = 0; !failed && n < wanted.count; n++) {
        const SafeEntry *have = safetensors_find(&pair->state, wanted.entries[n].name);
        device_copy(memory[n].device, memory[n].data, NULL,
                    (const char *)have->data + memory[n].offset, memory[n].bytes);
    }
    safetensors_free(&wanted);
    free(memory);
    return failed;
}

int checkpoint_load(const char *path, Module *model, Optimizer *optimizer, SafeTensors *state,
                    Progress *progress, Error *err) {
    Pair pair;
    *state = (SafeTensors){0};
    int failed = read_pair(path, &pair, err) == CHECKPOINT_WHOLE ? 0 : -1;
    if (!failed) failed = apply_pair(&pair, path, model, optimizer, err);
    if (!failed) {
        *progress = pair.progress;
        *state = pair.strategy;
        state->buffer = pair.state.buffer;
        pair.strategy.entries = pair.state.buffer = NULL;
    }
    pair_free(&pair);
    return failed;
}
