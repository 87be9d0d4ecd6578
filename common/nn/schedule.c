/* schedule.c: the learning rate as a function of the step. */
#include <math.h>
#include <string.h>

#include "common/base/error.h"
#include "common/nn/optimizer.h"

double schedule_lr(const Schedule *schedule, size_t step) {
    if (step < schedule->warmup_steps)
        return schedule->lr * (double)(step + 1) / (double)schedule->warmup_steps;

    size_t after = step - schedule->warmup_steps;
    size_t span = schedule->total_steps > schedule->warmup_steps
                      ? schedule->total_steps - schedule->warmup_steps
                      : 1;
    double done = after < span ? (double)after / (double)span : 1.0; // 0 .. 1
    if (strcmp(schedule->name, "constant") == 0) return schedule->lr;
    if (strcmp(schedule->name, "step") == 0)
        return schedule->lr * pow(schedule->gamma, (double)(after / schedule->step_every));
    if (strcmp(schedule->name, "cosine") == 0)
        return schedule->lr * 0.5 * (1.0 + cos(3.14159265358979323846 * done));
    CHECK(strcmp(schedule->name, "polynomial") == 0, "there is no schedule %s", schedule->name);
    return schedule->lr * pow(1.0 - done, schedule->power);
}
