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
// This rank has a gradient of the parameter. Stays so until used_map_settle.
void used_map_mark(UsedMap *map, size_t parameter);
// Makes the parameter ready without a gradient of this backward.
void used_map_contribute(UsedMap *map, size_t parameter);
bool used_map_contributed(const UsedMap *map, size_t parameter); // since used_map_settle
// Starts the all-reduce of the map.
void used_map_exchange(UsedMap *map, Error *err);
// All buckets are reduced: waits for the map, gives the contributed gradients their end, and
// forgets what this rank has used.
void used_map_settle(UsedMap *map, Error *err);
// Without an exchange: by the map of the last one.
void used_map_settle_again(UsedMap *map);

#endif
