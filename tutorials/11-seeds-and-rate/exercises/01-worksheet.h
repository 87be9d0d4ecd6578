/* 01-worksheet.h: batch size, steps and learning rate of a program on several ranks.
 *
 * The program was tuned on one device: base_batch rows in a step, at the rate base_lr. Now `world`
 * ranks take batch_per_rank rows each. What are
 *
 *     global_batch       the rows of a step, of all ranks together
 *     steps_per_epoch    the steps of an epoch. Each rank has samples / world samples, rounded up,
 *                        and a last batch may be short
 *     total_steps        the schedule's number of steps: the steps of all epochs
 *     lr                 the rate by the linear rule: k times the rows of base_batch, k times the
 *                        rate. The factor is that of the rows, not the number of ranks
 */
#ifndef TUTORIALS_WORKSHEET_H
#define TUTORIALS_WORKSHEET_H

#include <stddef.h>

typedef struct Worksheet {
    size_t global_batch, steps_per_epoch, total_steps;
    double lr;
} Worksheet;

typedef struct Job {
    size_t samples, epochs;
    int world;
    size_t batch_per_rank;
    size_t base_batch; // on one device
    double base_lr;
} Job;

Worksheet fill_worksheet(const Job *job);

#endif
