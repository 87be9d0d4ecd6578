/* debug_level.h: how much the ranks say about what they do: TORCH_DISTRIBUTED_DEBUG, with PyTorch's
 * values in any case of letters.
 *
 *     OFF     (also: not set) errors only. What PyTorch checks only at DETAIL, that all ranks issue
 *             the same collectives, the shm backend checks always: it costs nothing there.
 *     INFO    each rank says on stderr which group it is in, and how its model is wrapped.
 *     DETAIL  when a group breaks, each rank also says what its last collectives were.
 */
#ifndef DDP_GROUP_DEBUG_LEVEL_H
#define DDP_GROUP_DEBUG_LEVEL_H

#include "common/base/error.h"

typedef enum DebugLevel { DEBUG_OFF, DEBUG_INFO, DEBUG_DETAIL } DebugLevel;

// Reads the environment. 0, or -1 with err filled.
int debug_level_read(DebugLevel *level, Error *err);

#endif
