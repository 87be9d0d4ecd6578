/* record.h: what a run leaves behind: lines on stdout, steps.csv, config.json, summary.json, dumped
 * gradients. Only the main rank records; a Record of another rank does nothing.
 */
#ifndef COMMON_TRAIN_RECORD_H
#define COMMON_TRAIN_RECORD_H

#include "common/base/profile.h"
#include "common/train/metrics.h"

typedef struct StepRecord {
    uint64_t step, epoch;
    double lr, loss; // loss is the mean over the global batch
    Score score;     // of the same outputs as the loss
    double scale;    // the factor of the loss in backward; 1 without a GradScaler
    uint64_t ns;     // the time of the whole step
    size_t samples;  // the step's, on all ranks together
} StepRecord;

typedef struct Record {
    const TrainConfig *config;
    const Strategy *strategy;
    bool main;
    Log log;
    FILE *steps;       // steps.csv; NULL without --out
    uint64_t *step_ns; // [step_capacity] every step's length, for the percentiles
    size_t step_count, step_capacity;
    double final_loss;
    Score final_score;
} Record;

// Makes the folder and writes config.json.
int record_open(Record *record, const TrainConfig *config, const Options *options,
                const Strategy *strategy, size_t total_steps, Error *err);
// Opens steps.csv for a run that begins at this step. Rows of earlier steps stay; later ones, which
// a killed run wrote after its last checkpoint, are removed, because they would come twice.
int record_start(Record *record, uint64_t first_step, Error *err);
void record_close(Record *record);
// Keeps a step's length. Allocates nothing.
void record_step_time(Record *record, uint64_t ns);
// Records a logged step: one row and one line.
void record_step(Record *record, const StepRecord *step, const Profile *profile);
// Records the evaluation after that epoch. Epochs count from 0, here as in the rows of steps.
void record_evaluation(Record *record, uint64_t epoch, const Evaluation *evaluation);
// Records the evaluation of weights that were only evaluated; path is their file.
void record_evaluation_of(Record *record, const char *path, const Evaluation *evaluation);

typedef struct Summary {
    const Profile *profile;
    uint64_t steps;
    size_t parameters; // elements
    size_t samples_per_step;
    double peak_bytes_device0;
    double peak_bytes_other; // the largest of the other devices; NaN if there is only one device
    double moved_bytes;      // by all ranks in all steps
    double best;             // the best score of an evaluation (Progress.best)
    double scale;            // StepRecord.scale of the last step
    uint64_t skipped_steps;
    Evaluation test;                 // of the last evaluation; NaN if there was none
    bool has_accuracy, has_mean_iou; // which of them `best` is; if neither, it is of the loss
    bool has_bits;                   // the data are text
} Summary;
int record_summary(Record *record, const Summary *summary, Error *err);

// Whether --dump-grads asks this process for the gradients of this step; and writes them.
bool record_wants_gradients(const Record *record, uint64_t step);
int record_gradients(const Record *record, Module *model, uint64_t step, Error *err);

#endif
