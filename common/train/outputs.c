/* outputs.c: takes, announces and releases the locks of --out and --save. */
#include "common/train/outputs.h"

#include "common/base/file.h"
#include "common/base/memory.h"

// Takes the lock of a file, after resolving links: two links to one file share it. Returns 0, or -1
// with err filled. `shown`: the path in messages.
static int claim(FileLock **lock, const char *option, const char *shown, const char *file,
                 Error *err) {
    char target[FILE_PATH_MAX];
    if (file_follow_links(file, target, err) != 0) return -1;
    char *path = memory_format("%s.lock", target), *what = memory_format("%s %.80s", option, shown);
    *lock = lock_take(path, what, err);
    free(path);
    free(what);
    return *lock ? 0 : -1;
}

// With --save that file is the last checkpoint (saving.c), and DIR/last.safetensors is another's.
static int claim_last(FileLock **lock, const TrainConfig *config, Error *err) {
    if (config->save) return 0;
    char *last = memory_format("%s/last.safetensors", config->out);
    int failed = claim(lock, "--out", last, last, err);
    free(last);
    return failed;
}

int outputs_claim(Outputs *outputs, const TrainConfig *config, Error *err) {
    int failed = 0;
    if (config->out) {
        if (file_make_folder(config->out, err) != 0) return -1;
        char *folder = memory_format("%s/", config->out);
        failed = claim(&outputs->out, "--out", config->out, folder, err) != 0 ||
                 claim_last(&outputs->last, config, err) != 0;
        free(folder);
    }
    if (!failed && config->save)
        failed = claim(&outputs->save, "--save", config->save, config->save, err);
    return failed ? -1 : 0;
}

static void announce(const FileLock *lock, const char *option, const char *path, RunLog *log) {
    if (lock && !lock_is_held(lock))
        log_say(log, "%s %s: its file system has no locks; another job there would not be noticed",
                option, path);
}

void outputs_announce(const Outputs *outputs, const TrainConfig *config, RunLog *log) {
    announce(outputs->out, "--out", config->out, log);
    announce(outputs->save, "--save", config->save, log);
}

void outputs_release(Outputs *outputs) {
    lock_release(outputs->last);
    lock_release(outputs->out);
    lock_release(outputs->save);
    *outputs = (Outputs){0};
}
