/* profile.h: where a step's time went.
 *
 * One thread (the one that drives the trainer) is at every moment in exactly one phase. Entering a
 * phase charges the time since the last switch to the phase that was current, so the phases
 * partition the step: their sum is the step, nothing is counted twice and nothing is lost.
 * Work that happens beside it (replicas' threads, the communication thread) is not charged here;
 * it shows in the trace (base/trace.h).
 */
#ifndef COMMON_BASE_PROFILE_H
#define COMMON_BASE_PROFILE_H

#include <stdint.h>

#include "common/base/trace.h"

typedef enum Phase {
    PHASE_OTHER,     // what no other phase claims
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
    uint64_t total[PHASE_COUNT]; // ns in all steps since profile_reset
    uint64_t steps;
    // How many ns DDP's all-reduces took, in this step and in all steps. They run beside the phases
    // and are none of them; the part of them that is not in PHASE_EXPOSED was hidden behind the
    // backward pass.
    uint64_t step_communication, total_communication;
    Trace *trace; // not owned; NULL: no trace
    int track;    // of the trace: where the phases are drawn
    // Waits until the device has done all that it was asked to do, so that this time is charged to
    // the phase that asked. Called at the end of every phase. NULL: nobody waits.
    void (*wait_for_device)(void *context);
    void *wait_context;
} Profile;

const char *phase_name(Phase phase); // "forward": also the column name in steps.csv

void profile_begin_step(Profile *profile); // starts in PHASE_OTHER
// Returns the step's length in ns; adds the step to the totals.
uint64_t profile_end_step(Profile *profile);
// Enters a phase and returns the one before, to be handed to profile_leave. profile may be NULL.
Phase profile_enter(Profile *profile, Phase phase);
void profile_leave(Profile *profile, Phase previous);
// Adds ns of communication that went on beside the phases. profile may be NULL.
void profile_communication(Profile *profile, uint64_t ns);

#endif
