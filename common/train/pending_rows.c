/* pending_rows.c: see pending_rows.h. */
#include "common/train/pending_rows.h"

#include <math.h>

#include "common/base/memory.h"

PendingRows pending_rows_open(const Step *step, Record *record, size_t total_steps) {
    PendingRows rows = {.step = step, .record = record, .total_steps = total_steps};
    rows.sums = memory_zalloc((1 + hits_size(step->input->set)) * sizeof *rows.sums);
    return rows;
}

void pending_rows_close(PendingRows *rows) {
    free(rows->sums);
}

// Whether the device is asynchronous: a step's loss is read back one step later.
static bool is_late(const PendingRows *rows) {
    return !device_is_synchronous(rows->step->strategy->device);
}

void pending_rows_wait(const PendingRows *rows) {
    if (is_late(rows) && rows->last.unread) (void)step_read_loss(rows->step, 1, NULL);
}

// Starts the sum over the processes of a step's loss and hits. The loss in steps.csv is the loss
// that training minimizes: where gradients are averaged over the processes, the average of the
// processes' losses, unweighted by their numbers of samples or pixels.
static int start_sum(PendingRows *rows, int back, Error *err) {
    Strategy *strategy = rows->step->strategy;
    PendingRow *row = &rows->summing;
    *row = rows->last;
    double loss = step_read_loss(rows->step, back, rows->sums + 1);
    rows->sums[0] = strategy->global_mean ? loss : loss / strategy_processes(strategy);
    row->sum =
        strategy->sum_start(strategy, rows->sums, 1 + hits_size(rows->step->input->set), err);
    return row->sum ? 0 : -1;
}

int pending_rows_finish(PendingRows *rows, Error *err) {
    Strategy *strategy = rows->step->strategy;
    PendingRow *row = &rows->summing;
    void *sum = row->sum;
    row->sum = NULL;
    if (!sum) return 0;
    if (strategy->sum_wait(strategy, sum, err) != 0) return -1;
    row->step.loss = rows->sums[0];
    row->step.score = hits_score(rows->step->input->set, rows->sums + 1, (double)row->step.samples,
                                 row->step.loss);
    record_step(rows->record, &row->step, &row->profile);
    return 0;
}

// Reads back and checks the loss of the unread step, which is `back` steps before the last enqueued
// one. Starts its sum if the step is logged.
static int check_loss(PendingRows *rows, int back, Error *err) {
    PendingRow *last = &rows->last;
    if (!last->unread) return 0;
    last->unread = false;
    double loss = step_read_loss(rows->step, back, NULL);
    const JobWatch *watch = rows->record->job->watch;
    // After another process's failure gradients are not reduced and the loss has no meaning.
    if (watch->check(watch, err) != 0) return -1;
    if (!isfinite(loss))
        return error_set(err, STATUS_FAILED,
                         "the loss is %f at step %llu (epoch %llu, lr %g): training has diverged",
                         loss, (unsigned long long)last->step.step,
                         (unsigned long long)last->step.epoch, last->step.lr);
    bool final = last->step.step + 1 == rows->total_steps;
    if (last->step.step % rows->step->config->log_every != 0 && !final) return 0;
    return start_sum(rows, back, err);
}

int pending_rows_add(PendingRows *rows, const StepRecord *step, const Profile *profile,
                     Error *err) {
    const PendingRow now = {.unread = true, .step = *step, .profile = *profile};
    const bool late = is_late(rows);
    if (!late) rows->last = now;
    if (pending_rows_finish(rows, err) != 0 || check_loss(rows, late ? 1 : 0, err) != 0) return -1;
    if (late) rows->last = now;
    return 0;
}

int pending_rows_settle(PendingRows *rows, Error *err) {
    if (pending_rows_finish(rows, err) != 0 || check_loss(rows, 0, err) != 0) return -1;
    return pending_rows_finish(rows, err);
}
