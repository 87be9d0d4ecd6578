/* record.h: a run's records: lines on stdout, steps.csv, dumped gradients (config.json and
 * summary.json: out_json.c). The main rank writes them; a Record of another rank does nothing.
 * Functions that return an int return 0, or -1 with err filled.
 */
#ifndef COMMON_TRAIN_RECORD_H
#define COMMON_TRAIN_RECORD_H

#include "common/base/profile.h"
#include "common/train/job.h"
#include "common/train/metrics.h"

typedef struct StepRecord {
    uint64_t step, epoch;
    double lr, loss; // loss: mean over the global batch
    Score score;     // of the same outputs as the loss
    double scale;    // the factor of the loss in backward; 1 without a GradScaler
    uint64_t ns;     // duration of the step
    size_t samples;  // of the global batch
} StepRecord;

static inline double record_ms(uint64_t ns) {
    return (double)ns / 1e6;
}

typedef struct Record {
    const TrainConfig *config;
    const Job *job;
    bool main;
    RunLog log;
    FILE *steps;       // steps.csv; NULL without --out
    int lost;          // errno of a row that could not be written; 0: none
    uint64_t *step_ns; // [step_capacity] durations, for the percentiles
    size_t step_count, step_capacity;
    double final_loss;
    Score final_score;
} Record;

Record record_open(const TrainConfig *config, const Job *job, size_t total_steps);
// Opens steps.csv for a run that begins at first_step. Keeps the rows of earlier steps and removes
// later ones, which a killed run wrote after its last checkpoint.
int record_start(Record *record, uint64_t first_step, Error *err);
void record_close(Record *record);
// Stores a step's duration. Allocates nothing.
void record_step_time(Record *record, uint64_t ns);
// Writes a logged step: a row of steps.csv and a line.
void record_step(Record *record, const StepRecord *step, const Profile *profile);
// Writes the evaluation of the weights that `of` names: "epoch=3", "evaluated=FILE".
void record_evaluation(Record *record, const char *of, const Evaluation *evaluation);

// Whether this step's gradients are written (--dump-grads); writes them. whole: the job's
// gather_gradients.
bool record_wants_gradients(const Record *record, uint64_t step);
int record_gradients(const Record *record, Module *model, const SafeTensors *whole, uint64_t step,
                     Error *err);

#endif
