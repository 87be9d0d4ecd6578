/* pending_rows.h: pending rows of steps.csv: each is written two steps late, because its loss is
 * read back asynchronously.
 *
 * A row of step k needs the step's loss and hits, and their sum over the processes. Both are
 * asynchronous. On a GPU the loss is read back one step later; the all-reduce over the processes
 * starts then and completes one step after that. On a CPU the loss is computed when the step
 * returns, and the row is written one step late.
 *
 *     step k      step k + 1               step k + 2
 *     enqueued    loss read back,          all-reduce completed,
 *                 all-reduce started       row k written
 */
#ifndef COMMON_TRAIN_PENDING_ROWS_H
#define COMMON_TRAIN_PENDING_ROWS_H

#include "common/base/profile.h"
#include "common/train/record.h"
#include "common/train/step.h"

typedef struct PendingRow {
    bool unread; // the step is enqueued and its loss not yet read back
    void *sum;   // handle of the sum in flight into PendingRows.sums; NULL: none
    StepRecord step;
    Profile profile;
} PendingRow;

typedef struct PendingRows {
    const Step *step;
    Record *record;
    size_t total_steps;
    PendingRow last;    // the last step's
    PendingRow summing; // the row whose sum is in flight
    double *sums;       // [1 + hits_size] the loss and the hits of `summing`
} PendingRows;

PendingRows pending_rows_open(const Step *step, Record *record, size_t total_steps);
void pending_rows_close(PendingRows *rows);

// Waits for the previous step's loss. Called when the current step is fully enqueued and before its
// time is taken, so that the wait counts as time of the step.
void pending_rows_wait(const PendingRows *rows);
// Adds an enqueued step, and reads back the loss of the previous step (on a CPU, its own). Returns
// -1 with err filled if that loss is not finite, or its sum or an earlier row's failed.
int pending_rows_add(PendingRows *rows, const StepRecord *step, const Profile *profile, Error *err);
// Waits for the sum in flight and writes its row; without one does nothing. 0, or -1 with err.
int pending_rows_finish(PendingRows *rows, Error *err);
// Writes all pending rows: none is in flight afterwards. 0, or -1 with err filled.
int pending_rows_settle(PendingRows *rows, Error *err);

#endif
