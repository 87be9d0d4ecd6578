/* 02-rate-of-step.h: the learning rate of each step, on several ranks.
 *
 * The program was tuned on one device, with base_batch rows in a step, at the rate base_lr. Now
 * `world` ranks take global_batch rows together. The full rate is that of the linear rule: k times
 * the rows of base_batch, k times base_lr.
 *
 *     warm-up          the rate grows in equal parts, and the last step of the warm-up has the full
 *                      rate; with 4 steps: 1/4, 2/4, 3/4 and 4/4 of it
 *     after it         half a cosine, from the full rate in the first step after the warm-up down
 *                      to 0 at total_steps: (1 + cos(pi x)) / 2 of the full rate, where x is the
 *                      part that is done of the steps after the warm-up
 *     from the end on  0
 *
 * Steps are the optimizer's, from 0, and all ranks take a step together. warmup_steps and
 * total_steps are counted in the same way.
 */
#ifndef TUTORIALS_RATE_OF_STEP_H
#define TUTORIALS_RATE_OF_STEP_H

#include <math.h>
#include <stddef.h>

#define PI_OF_RATE 3.14159265358979323846

typedef struct RatePlan {
    double base_lr;
    size_t base_batch; // on one device
    size_t global_batch;
    int world;
    size_t warmup_steps, total_steps; // fewer in the warm-up than in all
} RatePlan;

double rate_of_step(const RatePlan *plan, size_t step);

#endif
