/* rows.h: the rows of the records, one for each logged step, on their way from the step to the
 * file.
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
    bool known; // false: there is no such step, or its loss has been looked at already
    void *sum;  // the sum over the processes that fills Rows.sums, until it is waited for; or NULL
    StepRecord step;
    Profile profile;
} Row;

typedef struct Rows {
    const Step *step;
    Record *record;
    size_t total_steps;
    Row next, row; // the last step's, and the one whose sum is on its way
    double *sums;  // [1 + hits_size], the loss and the hits of `row`
} Rows;

Rows rows_open(const Step *step, Record *record, size_t total_steps);
void rows_close(Rows *rows);

// Waits for the loss of the step before the current one. It is called when all of the current step
// has been asked for and before its time is taken: so the time of the wait belongs to the step.
void rows_wait(const Rows *rows);
// Adds a step that has been asked for. Returns -1 with err filled if an earlier one's loss is not
// finite or could not be added up.
int rows_add(Rows *rows, const StepRecord *step, const Profile *profile, Error *err);
// Takes up the sum that is on its way, if there is one.
int rows_finish(Rows *rows, Error *err);
// Writes every row up to here: afterwards no step's loss is on its way.
int rows_settle(Rows *rows, Error *err);

#endif
