/* used_map.h: which parameters were used by any rank, and what becomes of the others' gradients.
 *
 * A parameter that this rank's loss does not depend on takes part in the reduction all the same,
 * for other ranks may have used it: it contributes its gradient of earlier backwards if that is
 * defined, else zeros. Whether anybody used it is only known afterwards, from an all-reduce of one
 * int32 per parameter. If nobody did, the gradient is as it was before: None stays None (so an
 * optimizer with momentum skips it), and a defined one keeps its value.
 */
#ifndef DDP_FEATURES_USED_MAP_H
#define DDP_FEATURES_USED_MAP_H

#include "ddp/reducer.h"

typedef struct UsedMap UsedMap;

UsedMap *used_map_create(Reducer *reducer);
void used_map_close(UsedMap *map);
// Notes that this rank has a gradient of the parameter. The note stays until used_map_wait.
void used_map_mark(UsedMap *map, size_t parameter);
// Makes the parameter ready without a gradient of this backward.
void used_map_contribute(UsedMap *map, size_t parameter);
// Whether used_map_contribute was called for it since the last used_map_return_gradients.
bool used_map_contributed(const UsedMap *map, size_t parameter);
// Starts the all-reduce of the map, which tells how many ranks have used each parameter. -1 with
// err filled.
int used_map_start(UsedMap *map, Error *err);
// Waits for it, if it was started, and forgets what this rank has used. -1 with err filled.
int used_map_wait(UsedMap *map, Error *err);
// All buckets are reduced: gives each contributed gradient the value it is to have, by the last map
// that was waited for.
void used_map_return_gradients(UsedMap *map);

#endif
