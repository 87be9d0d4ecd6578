/* flight_trigger.h: asks a running rank for its flight records: whoever writes a byte into a named
 * pipe gets them. For jobs that hang but have not reached their timeout yet:
 *
 *     DDPC_FLIGHT_DIR=dump DDPC_FLIGHT_PIPE=/tmp/job ddprun --nproc-per-node 4 train_ddp &
 *     for pipe in /tmp/job*.pipe; do echo >$pipe; done; flight_report dump
 *
 * One thread that sleeps until then; there is none unless somebody wants a pipe.
 */
#ifndef DDP_GROUP_FLIGHT_TRIGGER_H
#define DDP_GROUP_FLIGHT_TRIGGER_H

#include "common/base/error.h"

typedef struct FlightTrigger FlightTrigger;

// Makes the pipe (one that lies there is used) and calls asked(context) from its thread after each
// write. NULL with err filled.
FlightTrigger *flight_trigger_open(const char *path, void (*asked)(void *context), void *context,
                                   Error *err);
void flight_trigger_close(FlightTrigger *trigger); // ends the thread and removes the pipe

#endif
