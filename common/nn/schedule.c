/* schedule.c: the learning rate as a function of the step. */
#include <math.h>

#include "common/base/error.h"
#include "common/nn/optimizer.h"

const char *schedule_name(ScheduleKind kind) {
    static const char *const NAMES[] = {"constant", "step", "cosine", "polynomial"};
    return NAMES[kind];
}

double schedule_lr(const Schedule *schedule, size_t step) {
    double start = schedule->warmup_start, warmup = (double)schedule->warmup_steps;
    if (step < schedule->warmup_steps && start > 0)
        return schedule->lr * (start + (1 - start) * (double)step / warmup);
    if (step < schedule->warmup_steps) return schedule->lr * (double)(step + 1) / warmup;

    size_t after = step - schedule->warmup_steps;
    size_t span = schedule->total_steps > schedule->warmup_steps
                      ? schedule->total_steps - schedule->warmup_steps
                      : 1;
    size_t period = schedule->step_every ? schedule->step_every : schedule->total_steps / 3 + 1;
    double done = after < span ? (double)after / (double)span : 1.0; // 0 .. 1
    switch (schedule->kind) {
    case SCHEDULE_CONSTANT:
        return schedule->lr;
    case SCHEDULE_STEP:
        // Whole periods only: NOLINTNEXTLINE(bugprone-integer-division)
        return schedule->lr * pow(schedule->gamma, (double)(after / period));
    case SCHEDULE_COSINE:
        return schedule->lr * 0.5 * (1.0 + cos(3.14159265358979323846 * done));
    case SCHEDULE_POLYNOMIAL:
        return schedule->lr * pow(1.0 - done, schedule->power);
    }
    CHECK(false, "there is no schedule %d", (int)schedule->kind);
}
