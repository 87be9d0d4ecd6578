/* run.h: the resources and the state of one run of the trainer, and the functions on a run: each
 * group is in the file that its comment names. All that return an int return 0, or -1 with err
 * filled; "collective": all processes call it.
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

// Which checkpoints the run writes (saving.c).
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
    uint64_t moved_bytes; // of this process in epochs: without set-up, evaluations, checkpoints
} Run;

// Reports the phase, and the step that the run is at, to the launcher.
static inline void run_enter(const Run *run, const char *phase) {
    const JobWatch *watch = run->job->watch;
    watch->enter(watch, phase, run->progress.step);
}

// ---- run_open.c, run_end.c ----------------------------------------------------------------------

// Validates the configuration, allocates the run's resources, and restores the checkpoint of a
// resumed run. Precondition: the caller has set config, options, data, job and strategy. In either
// case run_close follows.
int run_open(Run *run, Error *err);
void run_close(Run *run);
// Writes the summary and the trace after the last step. Collective.
int run_end(Run *run, const Evaluation *evaluation, Error *err);

// ---- out_json.c ---------------------------------------------------------------------------------

// Write config.json and summary.json into --out's folder, which exists; for the main process.
// totals: [devices + 1] each device's peak bytes, then all ranks' moved_bytes.
int out_json_config(const Run *run, Error *err);
int out_json_summary(Run *run, const Evaluation *test, const double *totals, Error *err);

// ---- bits_table.c, dry_run.c --------------------------------------------------------------------

// Logs that DataParallel and DistributedDataParallel have equal bits, or the reasons why not and
// the options that make them equal. Logs nothing for one device or without training.
void bits_announce(Run *run);

// --dry-run: the main process prints the first device's bytes by kind on stdout, counted in two
// steps on devices that allocate and compute nothing (device/dry.c). A line for each kind:
//   weights      parameters and buffers
//   gradients    of the parameters
//   optimizer    moments or velocity, and copies of weights in 16 bits
//   batch        samples and labels
//   logits       the model's outputs, counted once: the loss and backward each keep as many again
//   activations  all other: saved by forward for backward, and scratch of both
// Their sum is the peak of the device's memory in training.
void dry_run_print(Run *run);

// ---- evaluation.c -------------------------------------------------------------------------------

// Evaluates the model on the test split, which the processes divide, between two steps. Collective.
int evaluate_run(Run *run, Evaluation *result, Error *err);

// ---- generation.c -------------------------------------------------------------------------------

// The main process prints --sample tokens as text between two lines on stdout; of token files, the
// tokens' numbers. Does nothing without --sample.
int generation_print(Run *run, Error *err);
// Returns the token whose interval contains `at`, if [0, 1) is divided into intervals of the
// lengths softmax(logits)[count].
size_t generation_draw(const float *logits, size_t count, double at);

// ---- checkpoints: saving.c, resuming.c ----------------------------------------------------------

// Broadcasts which checkpoints the main process writes: gathering the job's state is collective,
// and another process's --out and --save may differ. Collective.
int saving_agree(Run *run, Error *err);
// Writes the last checkpoint, to --save's file or into --out. Collective.
int save_last(Run *run, Error *err);
// Writes a permanent checkpoint every --keep-epochs epochs: --out's model_00010.safetensors after
// ten epochs. Collective.
int save_epoch(Run *run, Error *err);
// Writes --out's best checkpoint if the evaluation is the best so far. Collective.
int save_if_best(Run *run, const Evaluation *evaluation, Error *err);
// Restores the checkpoint that --resume names; all processes continue at the same step. Collective.
int resume_run(Run *run, Error *err);

#endif
