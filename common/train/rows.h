/* rows.h: the rows of the records, one for each logged step, on their way.
 *
 * A row needs the step's loss and hits, which the device has not computed yet, and their sum over
 * the processes. Nobody waits for either: the loss is looked at a step
 * later where the device works on its own, and the sum, started then, is taken up after the next
 * step.
 *
 *     step k      step k + 1      step k + 2
 *     asked for   computed        sum taken up: row k is written
 *                 then the sum
 *                 is started
 */
#ifndef COMMON_TRAIN_ROWS_H
#define COMMON_TRAIN_ROWS_H

#include "common/train/record.h"
#include "common/train/step.h"

typedef struct Row {
    bool known; // there is such a step, whose loss nobody has looked at yet
    void *sum;  // of its numbers over the processes, on its way into Rows.sums; NULL: none
    StepRecord step;
    Profile profile;
} Row;

typedef struct Rows {
    const Step *step;
    Record *record;
    size_t total_steps;
    Row next, row; // of the last step, and of one that is being added up
    double *sums;  // [1 + hits_size]: the latter's loss and hits
} Rows;

Rows rows_open(const Step *step, Record *record, size_t total_steps);
void rows_close(Rows *rows);

// Within a step's time, when all of it is asked for: waits for the loss of the step before.
void rows_wait(const Rows *rows);
// After a step, which has been asked for. -1 with err filled if an earlier one's loss is not finite
// or could not be added up.
int rows_add(Rows *rows, const StepRecord *step, const Profile *profile, Error *err);
// Takes up the sum that is on its way, if there is one.
int rows_finish(Rows *rows, Error *err);
// Afterwards no step's loss is on its way: every row up to here is written.
int rows_settle(Rows *rows, Error *err);

#endif
