/* flight_trigger.h: requests a running rank's flight records by a write into a named pipe, for jobs
 * that hang and have not reached their timeout yet:
 *
 *     DDPC_FLIGHT_DIR=dump DDPC_FLIGHT_PIPE=/tmp/job ddprun --nproc-per-node 4 train_ddp &
 *     for pipe in /tmp/job*.pipe; do echo >$pipe; done; flight_report dump
 *
 * A thread blocks on the pipe; without a configured pipe there is no thread.
 */
#ifndef DDP_GROUP_FLIGHT_TRIGGER_H
#define DDP_GROUP_FLIGHT_TRIGGER_H

#include "common/base/error.h"

typedef struct FlightTrigger FlightTrigger;

// Creates the pipe, or opens an existing one, and calls asked(context) from the trigger's thread
// after each write. NULL with err filled.
FlightTrigger *flight_trigger_open(const char *path, void (*asked)(void *context), void *context,
                                   Error *err);
void flight_trigger_close(FlightTrigger *trigger); // ends the thread and removes the pipe

#endif
