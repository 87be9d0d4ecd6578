/* saving.c: gathers all processes' state; the main process writes the checkpoints. */
#include <dirent.h>
#include <fnmatch.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/train/run.h"

int saving_agree(Run *run, Error *err) {
    const TrainConfig *config = run->config;
    bool here = strategy_is_main(run->strategy);
    double saves[] = {here && (config->save || config->out), here && config->out};
    if (strategy_sum(run->strategy, saves, 2, err) != 0) return -1;
    run->saves.saves_last = saves[0] > 0;
    run->saves.saves_best = saves[1] > 0;
    return 0;
}

static void remove_from(const char *folder, const char *name) {
    char *path = memory_format("%s/%s", folder, name);
    checkpoint_remove(path);
    free(path);
}

// Removes another run's checkpoints from --out before the first save, because --resume auto would
// choose them if they have more steps. The last one is kept until this run's replaces it.
static void take_over_folder(Run *run) {
    const char *folder = run->config->out;
    if (run->saves.owns_folder) return;
    run->saves.owns_folder = true;
    remove_from(folder, "previous.safetensors");
    remove_from(folder, "best.safetensors");
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (fnmatch("model_[0-9][0-9][0-9][0-9][0-9]*.safetensors", entry->d_name, 0) == 0)
            remove_from(folder, entry->d_name);
    if (directory) closedir(directory);
}

// Writes DIR/NAME.safetensors, or --save's file if that is to be the last checkpoint. This run's
// last checkpoint in DIR is first renamed to previous.safetensors.
static int write_checkpoint(Run *run, const char *name, const SafeTensors *state, Error *err) {
    const TrainConfig *config = run->config;
    const bool is_last = strcmp(name, "last") == 0;
    if (is_last && config->save)
        return checkpoint_save(config->save, NULL, run->strategy->model, run->optimizer, state,
                               &run->progress, err);
    const bool replaces = is_last && run->saves.owns_last;
    run->saves.owns_last |= is_last;
    take_over_folder(run);
    char *path = memory_format("%s/%s.safetensors", config->out, name);
    char *previous = memory_format("%s/previous.safetensors", config->out);
    int failed = checkpoint_save(path, replaces ? previous : NULL, run->strategy->model,
                                 run->optimizer, state, &run->progress, err);
    free(path);
    free(previous);
    return failed;
}

// Gathers all processes' state, then the main process writes the checkpoint `name`. No file changes
// before every process has sent its state.
static int save(Run *run, const char *name, Error *err) {
    Strategy *strategy = run->strategy;
    SafeTensors state = {0};
    run_enter(run, "checkpoint");
    step_scaler_save(run->step, &run->progress);
    // On asynchronous devices an enqueued step may still fail. After the barrier the collective
    // work of all enqueued steps has completed, or err has the error of one.
    if (!device_is_synchronous(strategy->device) && strategy_barrier(strategy, err) != 0) return -1;
    if (run->job->save_state(run->job, run->optimizer, &state, err) != 0) return -1;
    int failed = strategy_is_main(strategy) ? write_checkpoint(run, name, &state, err) : 0;
    safetensors_free(&state);
    return failed;
}

int save_last(Run *run, Error *err) {
    return run->saves.saves_last ? save(run, "last", err) : 0;
}

int save_epoch(Run *run, Error *err) {
    size_t every = run->config->keep_epochs;
    bool due = every > 0 && run->progress.batch == 0 && run->progress.epoch % every == 0;
    if (!due || !run->saves.saves_best) return 0;
    char name[32];
    snprintf(name, sizeof name, "model_%05llu", (unsigned long long)run->progress.epoch);
    return save(run, name, err);
}

// The best checkpoint has the largest score: mean IoU of pixels, accuracy of samples, or the
// negated loss of text and of numbers.
int save_if_best(Run *run, const Evaluation *evaluation, Error *err) {
    const Dataset *set = &run->data->test;
    double score = set->dense    ? evaluation->score.mean_iou
                   : set->labels ? evaluation->score.accuracy
                                 : -evaluation->loss;
    if (!(score > run->progress.best)) return 0;
    run->progress.best = score;
    return run->saves.saves_best ? save(run, "best", err) : 0;
}
