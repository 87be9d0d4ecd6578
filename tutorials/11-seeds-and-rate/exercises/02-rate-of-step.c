/* 02-rate-of-step.c: the linear rule, a warm-up, half a cosine (task: 02-rate-of-step.h). */
#include "tutorials/11-seeds-and-rate/exercises/02-rate-of-step.h"

// SOLUTION BEGIN
double rate_of_step(const RatePlan *plan, size_t step) {
    const double warmup = (double)plan->warmup_steps, total = (double)plan->total_steps;
    double full = plan->base_lr * (double)plan->global_batch / (double)plan->base_batch;
    if (step < plan->warmup_steps) return full * (double)(step + 1) / warmup;
    if (step >= plan->total_steps) return 0;
    double done = ((double)step - warmup) / (total - warmup);
    return full * (1 + cos(PI_OF_RATE * done)) / 2;
}
// SOLUTION END
