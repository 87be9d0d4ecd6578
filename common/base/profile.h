/* profile.h: where a step's time went.
 *
 * The trainer's thread is in exactly one phase at any time. Entering a phase charges the time since
 * the last switch to the phase before, so the phases partition the step: their sum is its length.
 * Other threads' work (replicas, communication) is not charged; the trace shows it (base/trace.h).
 */
#ifndef COMMON_BASE_PROFILE_H
#define COMMON_BASE_PROFILE_H

#include "common/base/trace.h"

typedef enum Phase {
    PHASE_OTHER,     // the rest of the step
    PHASE_DATA,      // waiting for the loader, copying the batch to the device
    PHASE_SCATTER,   // DP: input chunks to the devices
    PHASE_REPLICATE, // DP: parameters and buffers to the devices; DDP: buffer broadcast
    PHASE_FORWARD,
    PHASE_GATHER, // DP: outputs to device 0 (and, in backward, their gradients back)
    PHASE_LOSS,
    PHASE_BACKWARD,
    PHASE_REDUCE,  // DP: gradients to device 0
    PHASE_EXPOSED, // DDP: communication that the backward pass did not hide
    PHASE_OPTIMIZER,
    PHASE_COUNT,
} Phase;

typedef struct Profile {
    Phase current;
    uint64_t since_ns;           // when `current` was entered
    uint64_t step[PHASE_COUNT];  // ns in this step
    uint64_t total[PHASE_COUNT]; // ns in all steps
    uint64_t steps;
    // ns of DDP's all-reduces, in this step and in all steps. They overlap the phases: all but
    // PHASE_EXPOSED of them was hidden behind the backward pass.
    uint64_t step_communication, total_communication;
    Trace *trace; // not owned; NULL: no trace
    int track;    // of the trace: the track of the phases
    // Synchronizes with the device, so that its work is charged to the phase that enqueued it.
    // Called at the end of every phase. NULL: the device is synchronous, or phases measure the host
    // only.
    void (*wait_for_device)(void *context);
    void *wait_context;
} Profile;

const char *phase_name(Phase phase); // "forward": also the column name in steps.csv

void profile_begin_step(Profile *profile); // starts in PHASE_OTHER
// Returns the step's length in ns; adds the step to the totals.
uint64_t profile_end_step(Profile *profile);
// Enters a phase and returns the previous phase, for profile_leave. profile may be NULL.
Phase profile_enter(Profile *profile, Phase phase);
void profile_leave(Profile *profile, Phase previous);
// Adds ns of communication that overlapped the phases. profile may be NULL.
void profile_communication(Profile *profile, uint64_t ns);

#endif
