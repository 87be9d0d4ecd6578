/* debug_level.h: TORCH_DISTRIBUTED_DEBUG, with PyTorch's values, in upper or lower case:
 *
 * | value        | output                                                                     |
 * |--------------|----------------------------------------------------------------------------|
 * | OFF or unset | errors only                                                                |
 * | INFO         | each rank prints its group, and how its model is wrapped                   |
 * | DETAIL       | also each rank's last collectives when a group breaks; nccl compares calls |
 *
 * shm and mpi compare the ranks' calls at every level, because it costs nothing there.
 */
#ifndef DDP_GROUP_DEBUG_LEVEL_H
#define DDP_GROUP_DEBUG_LEVEL_H

#include "common/base/error.h"

typedef enum DebugLevel { DEBUG_OFF, DEBUG_INFO, DEBUG_DETAIL } DebugLevel;

// Reads the environment. 0, or -1 with err filled.
int debug_level_read(DebugLevel *level, Error *err);

#endif
