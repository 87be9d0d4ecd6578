/* outputs.c: takes, announces and releases the locks of --out and --save. */
#include "common/train/outputs.h"

#include "common/base/file.h"
#include "common/base/memory.h"

static FileLock *claim(const char *option, const char *path, const char *lock_path, Error *err) {
    char *what = memory_format("%s %.80s", option, path);
    FileLock *lock = lock_take(lock_path, what, err);
    free(what);
    return lock;
}

// Returns the lock of the file, after resolving links: two links to one file share it. NULL with
// err.
static FileLock *claim_file(const char *option, const char *file, Error *err) {
    char target[FILE_PATH_MAX];
    if (file_follow_links(file, target, err) != 0) return NULL;
    char *path = memory_format("%s.lock", target);
    FileLock *lock = claim(option, file, path, err);
    free(path);
    return lock;
}

static int claim_folder(Outputs *outputs, const char *folder, Error *err) {
    if (file_make_folder(folder, err) != 0) return -1;
    char *path = memory_format("%s/.lock", folder);
    char *last = memory_format("%s/last.safetensors", folder);
    outputs->out = claim("--out", folder, path, err);
    if (outputs->out) outputs->last = claim_file("--out", last, err);
    free(path);
    free(last);
    return outputs->last ? 0 : -1;
}

int outputs_claim(Outputs *outputs, const TrainConfig *config, Error *err) {
    if (config->out && claim_folder(outputs, config->out, err) != 0) return -1;
    if (config->save) outputs->save = claim_file("--save", config->save, err);
    return config->save && !outputs->save ? -1 : 0;
}

static void announce(const FileLock *lock, const char *option, const char *path, Log *log) {
    if (lock && !lock_is_held(lock))
        log_say(log, "%s %s: its file system has no locks; another job there would not be noticed",
                option, path);
}

void outputs_announce(const Outputs *outputs, const TrainConfig *config, Log *log) {
    announce(outputs->out, "--out", config->out, log);
    announce(outputs->save, "--save", config->save, log);
}

void outputs_release(Outputs *outputs) {
    lock_release(outputs->last);
    lock_release(outputs->out);
    lock_release(outputs->save);
    *outputs = (Outputs){0};
}
