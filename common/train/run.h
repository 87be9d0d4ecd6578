/* run.h: all that one run of the trainer is made of, and its opening and closing. */
#ifndef COMMON_TRAIN_RUN_H
#define COMMON_TRAIN_RUN_H

#include "common/data/loader.h"
#include "common/train/rows.h"
#include "common/train/step_graph.h"

// Which checkpoints the run writes (saving.h).
typedef struct Saves {
    bool owns_folder; // no checkpoint of an earlier run is left in --out, but for the last one
    bool owns_last;   // the last checkpoint in --out is this run's, too
    bool saves_last, saves_best; // whether the main process writes these: equal on all processes
} Saves;

typedef struct Run {
    const TrainConfig *config;
    const DataSource *data;
    Strategy *strategy;
    Profile profile;
    Trace *trace; // NULL: none asked for
    Optimizer *optimizer;
    Schedule schedule;
    Augment augment;
    Loader *loader;
    Step *step;
    StepGraph *graph; // NULL: none asked for
    Record record;
    Rows rows;
    Saves saves;
    Progress progress;
    size_t total_steps;
} Run;

// Refuses what cannot end well, then opens everything. The fields config, data and strategy are set
// before. Whether it succeeds or fails, run_close follows.
int run_open(Run *run, const Options *options, Error *err);
void run_close(Run *run);

// Tells whoever watches over this process what it is about to do.
void run_enter(const Run *run, const char *phase);

#endif
