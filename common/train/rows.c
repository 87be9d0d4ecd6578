/* rows.c: see rows.h. */
#include "common/train/rows.h"

#include <math.h>

#include "common/base/memory.h"

Rows rows_open(const Step *step, Record *record, size_t total_steps) {
    Rows rows = {.step = step, .record = record, .total_steps = total_steps};
    rows.sums = memory_zalloc((1 + hits_size(step->losses.set)) * sizeof *rows.sums);
    return rows;
}

void rows_close(Rows *rows) {
    free(rows->sums);
    *rows = (Rows){0};
}

// Whether the device works on its own: what it is asked for is not done when the call returns.
static bool is_late(const Rows *rows) {
    return !device_is_synchronous(rows->step->strategy->device);
}

void rows_wait(const Rows *rows) {
    if (is_late(rows) && rows->next.known) (void)late_losses_get(&rows->step->losses, 1);
}

// Starts the sum over the processes of a step's loss and hits. The loss is the one that the run is
// trained on: where gradients are averaged over the processes, it is the average of their losses,
// however many samples or pixels each is a mean over.
static int start_sum(Rows *rows, double loss, int back, Error *err) {
    Strategy *strategy = rows->step->strategy;
    const LateLosses *losses = &rows->step->losses;
    Row *row = &rows->row;
    *row = rows->next;
    rows->sums[0] = strategy->global_mean ? loss : loss / strategy_processes(strategy);
    late_losses_get_hits(losses, back, rows->sums + 1);
    row->sum = strategy->sum_start(strategy, rows->sums, 1 + hits_size(losses->set), err);
    return row->sum ? 0 : -1;
}

int rows_finish(Rows *rows, Error *err) {
    Strategy *strategy = rows->step->strategy;
    Row *row = &rows->row;
    void *sum = row->sum;
    row->sum = NULL;
    if (!sum) return 0;
    if (strategy->sum_wait(strategy, sum, err) != 0) return -1;
    row->step.loss = rows->sums[0];
    row->step.score = hits_score(rows->step->losses.set, rows->sums + 1, (double)row->step.samples,
                                 row->step.loss);
    record_step(rows->record, &row->step, &row->profile);
    return 0;
}

// Looks at the loss of the step that was run `back` steps before the last one.
static int look_at_loss(Rows *rows, int back, Error *err) {
    Row *next = &rows->next;
    if (!next->known) return 0;
    next->known = false;
    double loss = late_losses_get(&rows->step->losses, back);
    const JobWatch *watch = rows->step->strategy->watch;
    // If another process has failed, gradients went unreduced, and the loss says nothing.
    if (watch->check(watch, err) != 0) return -1;
    if (!isfinite(loss))
        return error_set(err, STATUS_FAILED,
                         "the loss is %f at step %llu (epoch %llu, lr %g): training has diverged",
                         loss, (unsigned long long)next->step.step,
                         (unsigned long long)next->step.epoch, next->step.lr);
    bool last = next->step.step + 1 == rows->total_steps;
    if (next->step.step % rows->step->config->log_every != 0 && !last) return 0;
    return start_sum(rows, loss, back, err);
}

int rows_add(Rows *rows, const StepRecord *step, const Profile *profile, Error *err) {
    const Row now = {.known = true, .step = *step, .profile = *profile};
    const bool late = is_late(rows);
    if (!late) rows->next = now;
    if (rows_finish(rows, err) != 0 || look_at_loss(rows, late ? 1 : 0, err) != 0) return -1;
    if (late) rows->next = now;
    return 0;
}

int rows_settle(Rows *rows, Error *err) {
    if (rows_finish(rows, err) != 0 || look_at_loss(rows, 0, err) != 0) return -1;
    return rows_finish(rows, err);
}
