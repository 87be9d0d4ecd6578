/* saving.c: gathers all processes' state; the main process writes the checkpoints. */
#include <dirent.h>
#include <fnmatch.h>

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

// Whether the name is of the form model_00010.safetensors.
static bool is_of_epoch(const char *name) {
    return fnmatch("model_[0-9][0-9][0-9][0-9][0-9]*.safetensors", name, 0) == 0;
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
        if (is_of_epoch(entry->d_name)) remove_from(folder, entry->d_name);
    if (directory) closedir(directory);
}

// Writes DIR/NAME.safetensors; keep_previous: renames the old file to DIR/previous.safetensors.
static int save_in_folder(Run *run, const char *name, bool keep_previous, const SafeTensors *state,
                          Error *err) {
    take_over_folder(run);
    char *path = memory_format("%s/%s.safetensors", run->config->out, name);
    char *previous = memory_format("%s/previous.safetensors", run->config->out);
    int failed = checkpoint_save(path, keep_previous ? previous : NULL, run->strategy->model,
                                 run->optimizer, state, &run->progress, err);
    free(path);
    free(previous);
    return failed;
}

static int write_best(Run *run, const SafeTensors *state, Error *err) {
    return save_in_folder(run, "best", false, state, err);
}

// Writes DIR/last.safetensors, or --save's file.
static int write_last(Run *run, const SafeTensors *state, Error *err) {
    const TrainConfig *config = run->config;
    if (config->save)
        return checkpoint_save(config->save, NULL, run->strategy->model, run->optimizer, state,
                               &run->progress, err);
    bool keep_previous = run->saves.owns_last;
    run->saves.owns_last = true;
    return save_in_folder(run, "last", keep_previous, state, err);
}

// A barrier on asynchronous devices, where an enqueued step may still fail: afterwards the
// collective work of all enqueued steps has completed, or err has the error of one.
static int settle_steps(Strategy *strategy, Error *err) {
    return device_is_synchronous(strategy->device) ? 0 : strategy_barrier(strategy, err);
}

// Gathers all processes' state, then the main process writes. No file changes before every process
// has sent its state.
static int save(Run *run, int (*write)(Run *, const SafeTensors *, Error *), Error *err) {
    Strategy *strategy = run->strategy;
    SafeTensors state = {0};
    run_enter(run, "checkpoint");
    step_scaler_save(&run->step->scaler, &run->progress);
    if (settle_steps(strategy, err) != 0 || run->job->save_state(run->job, &state, err) != 0)
        return -1;
    int failed = strategy_is_main(strategy) ? write(run, &state, err) : 0;
    safetensors_free(&state);
    return failed;
}

int save_last(Run *run, Error *err) {
    return run->saves.saves_last ? save(run, write_last, err) : 0;
}

static int write_epoch(Run *run, const SafeTensors *state, Error *err) {
    char name[32];
    snprintf(name, sizeof name, "model_%05llu", (unsigned long long)run->progress.epoch);
    return save_in_folder(run, name, false, state, err);
}

int save_epoch(Run *run, Error *err) {
    size_t every = run->config->keep_epochs;
    bool due = every > 0 && run->progress.batch == 0 && run->progress.epoch % every == 0;
    return due && run->saves.saves_best ? save(run, write_epoch, err) : 0;
}

// Returns the number that the best checkpoint maximizes: mean IoU of pixels, accuracy of samples,
// or the negated loss of text and of numbers.
static double best_score(const Dataset *set, const Evaluation *evaluation) {
    if (set->dense) return evaluation->score.mean_iou;
    return set->labels ? evaluation->score.accuracy : -evaluation->loss;
}

int save_if_best(Run *run, const Evaluation *evaluation, Error *err) {
    double score = best_score(&run->data->test, evaluation);
    if (!(score > run->progress.best)) return 0;
    run->progress.best = score;
    return run->saves.saves_best ? save(run, write_best, err) : 0;
}
