/* 01-worksheet.c: rows, steps and a rate. The task is in 01-worksheet.h. */
#include "tutorials/11-seeds-and-rate/exercises/01-worksheet.h"

// SOLUTION BEGIN
Worksheet fill_worksheet(const Job *job) {
    const size_t ranks = (size_t)job->world;
    const size_t own = (job->samples + ranks - 1) / ranks; // samples of a rank
    Worksheet sheet = {.global_batch = ranks * job->batch_per_rank,
                       .steps_per_epoch = (own + job->batch_per_rank - 1) / job->batch_per_rank};
    sheet.total_steps = job->epochs * sheet.steps_per_epoch;
    sheet.lr = job->base_lr * (double)sheet.global_batch / (double)job->base_batch;
    return sheet;
}
// SOLUTION END
