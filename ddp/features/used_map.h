/* used_map.h: parameters used by any rank, and the gradients of unused parameters.
 *
 * A parameter that this rank's loss does not depend on is reduced nevertheless, because other ranks
 * may have used it: this rank contributes its gradient of earlier backwards if it is defined, else
 * zeros. Afterwards an all-reduce of one int32 per parameter counts the ranks that used it. If the
 * count is 0, its gradient is restored: None remains None (so an optimizer with momentum skips it),
 * and a defined gradient keeps its value.
 */
#ifndef DDP_FEATURES_USED_MAP_H
#define DDP_FEATURES_USED_MAP_H

#include "ddp/reducer.h"

typedef struct UsedMap {
    Reducer *reducer;
    const NamedTensors *parameters;
    int32_t *used;  // [parameters], 1: used by this rank since the last exchange; policies set it
    int32_t *ranks; // [parameters], number of ranks that used it, by the last exchange
    bool *lent;     // [parameters], contributed since the last used_map_return_gradients
    float **kept;   // [parameters], gradient before its contribution, in host memory; NULL: None
    PgWork *work;   // the exchange in flight, or NULL
} UsedMap;

UsedMap *used_map_create(Reducer *reducer);
void used_map_close(UsedMap *map);
// Marks the parameter ready without a gradient of this backward.
void used_map_contribute(UsedMap *map, size_t parameter);
// Starts the all-reduce that counts the ranks that used each parameter. 0, or -1 with err filled.
int used_map_start(UsedMap *map, Error *err);
// Waits for the exchange, if one is in flight, and clears `used`. 0, or -1 with err filled.
int used_map_wait(UsedMap *map, Error *err);
// Keeps or restores each contributed gradient, by the last map. After a failure of the reducer it
// restores none: other ranks may still read the buckets.
void used_map_return_gradients(UsedMap *map);

#endif
