/* resuming.c: continues from a checkpoint: chooses it, checks that it fits the run and that all
 * processes have the same one (saving.c).
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/train/checks.h"
#include "common/train/run.h"

// Sets *path to the checkpoint that --resume names, freed by the caller; NULL if --resume is auto
// and --out has no checkpoint yet. 0, or -1 with err filled.
static int choose_checkpoint(Run *run, char **path, Error *err) {
    const TrainConfig *config = run->config;
    bool automatic = strcmp(config->resume, "auto") == 0;
    const char *place = config->resume;
    if (automatic) place = config->save ? config->save : config->out;
    struct stat info;
    *path = NULL;
    bool there = stat(place, &info) == 0;
    if (automatic && !there && errno == ENOENT) return 0;
    if (!there || !S_ISDIR(info.st_mode)) {
        *path = memory_format("%s", place); // loading reports a missing file
        return 0;
    }
    if (checkpoint_find(place, path, &run->record.log, err) != 0) return -1;
    if (*path || automatic) return 0;
    return error_set(err, STATUS_USAGE, "%s: holds no checkpoint", place);
}

static bool lies_in(const char *path, const char *folder) {
    char *parent = memory_format("%s", path), *slash = strrchr(parent, '/');
    if (slash) slash[1] = '\0';
    struct stat a, b;
    bool same = stat(slash ? parent : ".", &a) == 0 && stat(folder, &b) == 0 &&
                a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    free(parent);
    return same;
}

static int load(Run *run, const char *path, SafeTensors *state, Error *err) {
    const TrainConfig *config = run->config;
    Strategy *strategy = run->strategy;
    Progress now = run->progress, *progress = &run->progress;
    RunLog *log = &run->record.log;
    step_scaler_save(run->step, &now);
    if (checkpoint_load(path, strategy->model, run->optimizer, state, progress, err) != 0)
        return -1;
    if (checks_resumed(path, progress, &now, log, err) != 0) return -1;
    // --save-every may save after the epoch's last batch: batch == batch_count is valid.
    if (progress->batch > strategy->sampler->batch_count)
        return error_set(err, STATUS_USAGE, "%s: stands at batch %llu of an epoch of %zu", path,
                         (unsigned long long)progress->batch, strategy->sampler->batch_count);
    if (progress->step > run->total_steps)
        return error_set(err, STATUS_USAGE,
                         "%s: stands at step %llu, and this run ends at step %zu -- give larger "
                         "--steps or --epochs, or an earlier checkpoint",
                         path, (unsigned long long)progress->step, run->total_steps);
    if (step_scaler_load(run->step, progress, err) != 0) return error_prefix(err, "%s", path);
    progress->devices = now.devices;
    memcpy(progress->notes, now.notes, sizeof progress->notes);
    run->saves.owns_folder = run->saves.owns_last = config->out && lies_in(path, config->out);
    log_say(log, "resumed %s at step %llu", path, (unsigned long long)progress->step);
    if (progress->step == run->total_steps)
        log_say(log, "the run is finished: %zu of %zu step%s done, nothing is left to train",
                run->total_steps, run->total_steps, format_s(run->total_steps));
    return run->job->load_state(run->job, path, state, log, err);
}

int resume_run(Run *run, Error *err) {
    char *path;
    SafeTensors state = {0};
    if (choose_checkpoint(run, &path, err) != 0) return -1;
    int failed = 0;
    if (path) failed = load(run, path, &state, err);
    if (!path) log_say(&run->record.log, "nothing to resume yet: starting at step 0");
    free(path);
    safetensors_free(&state);
    if (failed) return failed;
    return checks_same_checkpoint(run->job, run->config->resume, &run->progress, err);
}
