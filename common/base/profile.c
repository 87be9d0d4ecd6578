/* profile.c: where a step's time went.
 *
 * Invariant: inside a step, every nanosecond from profile_begin_step to since_ns is charged to
 * exactly one phase; time after since_ns belongs to `current`. Outside a step since_ns is 0 and no
 * time is charged.
 */
#include "common/base/profile.h"

#include <string.h>

#include "common/base/clock.h"

const char *phase_name(Phase phase) {
    static const char *const names[PHASE_COUNT] = {
        [PHASE_OTHER] = "other",         [PHASE_DATA] = "data",
        [PHASE_SCATTER] = "scatter",     [PHASE_REPLICATE] = "replicate",
        [PHASE_FORWARD] = "forward",     [PHASE_GATHER] = "gather",
        [PHASE_LOSS] = "loss",           [PHASE_BACKWARD] = "backward",
        [PHASE_REDUCE] = "reduce",       [PHASE_EXPOSED] = "exposed",
        [PHASE_OPTIMIZER] = "optimizer",
    };
    CHECK(phase < PHASE_COUNT, "phase %d", (int)phase);
    return names[phase];
}

// Charges the time since the last switch to the current phase.
static void charge_phase(Profile *profile) {
    if (profile->since_ns == 0) return;
    if (profile->wait_for_device) profile->wait_for_device(profile->wait_context);
    uint64_t now = clock_ns();
    profile->step[profile->current] += now - profile->since_ns;
    if (profile->trace && now > profile->since_ns)
        trace_span(profile->trace, profile->track, phase_name(profile->current),
                   (int64_t)profile->steps, profile->since_ns, now);
    profile->since_ns = now;
}

void profile_begin_step(Profile *profile) {
    if (!profile) return;
    memset(profile->step, 0, sizeof profile->step);
    profile->step_communication = 0;
    profile->since_ns = clock_ns();
}

uint64_t profile_end_step(Profile *profile) {
    if (!profile) return 0;
    CHECK(profile->current == PHASE_OTHER, "a step ends in the phase %s",
          phase_name(profile->current));
    charge_phase(profile);
    uint64_t length = 0;
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        length += profile->step[phase];
        profile->total[phase] += profile->step[phase];
    }
    profile->steps++;
    profile->since_ns = 0;
    return length;
}

Phase profile_enter(Profile *profile, Phase phase) {
    if (!profile) return PHASE_OTHER;
    charge_phase(profile);
    Phase previous = profile->current;
    profile->current = phase;
    return previous;
}

void profile_leave(Profile *profile, Phase previous) {
    profile_enter(profile, previous);
}

void profile_communication(Profile *profile, uint64_t ns) {
    if (!profile) return;
    profile->step_communication += ns;
    profile->total_communication += ns;
}
