/* run.h: the resources and the state of one run of the trainer. run_open.h opens and closes it.
 *
 *     config, options, data, job, strategy    the caller's
 *     all other fields                        the run's own, closed by run_close
 */
#ifndef COMMON_TRAIN_RUN_H
#define COMMON_TRAIN_RUN_H

#include "common/base/profile.h"
#include "common/data/loader.h"
#include "common/train/outputs.h"
#include "common/train/pending_rows.h"
#include "common/train/step_graph.h"

// Which checkpoints the run writes (saving.h).
typedef struct Saves {
    bool owns_folder; // --out has no checkpoint of an earlier run, except possibly the last one
    bool owns_last;   // the last checkpoint in --out is this run's
    bool saves_last, saves_best; // the main process writes these; the same on all processes
} Saves;

typedef struct Run {
    const TrainConfig *config;
    const Options *options; // the command line, for config.json
    const DataSource *data;
    Job *job;
    Strategy *strategy; // job->strategy: a step's only access to the job
    Profile profile;
    Trace *trace; // NULL: without --trace
    Optimizer *optimizer;
    Schedule schedule;
    Augment augment;
    Loader *loader;
    Step *step;
    StepGraph *graph; // NULL: without --cuda-graph
    Record record;
    PendingRows rows;
    Saves saves;
    Outputs outputs;
    Progress progress;
    size_t total_steps;
} Run;

// Reports the phase, and the step that the run is at, to the launcher.
static inline void run_enter(const Run *run, const char *phase) {
    const JobWatch *watch = run->job->watch;
    watch->enter(watch, phase, run->progress.step);
}

#endif
