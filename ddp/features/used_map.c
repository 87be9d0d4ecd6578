/* used_map.c: the map of used parameters, and copies of the gradients that are restored if no rank
 * used them.
 */
#include "ddp/features/used_map.h"

#include <string.h>

#include "common/base/memory.h"

UsedMap *used_map_create(Reducer *reducer) {
    UsedMap *map = memory_zalloc(sizeof *map);
    map->reducer = reducer;
    map->parameters = &reducer->slab.parameters;
    size_t count = map->parameters->count;
    map->used = memory_zalloc(count * sizeof *map->used);
    map->ranks = memory_zalloc(count * sizeof *map->ranks);
    map->lent = memory_zalloc(count * sizeof *map->lent);
    map->kept = memory_zalloc(count * sizeof *map->kept);
    return map;
}

void used_map_close(UsedMap *map) {
    if (!map) return;
    for (size_t i = 0; i < map->parameters->count; i++) free(map->kept[i]);
    free(map->used);
    free(map->ranks);
    free(map->lent);
    free(map->kept);
    free(map);
}

void used_map_contribute(UsedMap *map, size_t parameter) {
    Tensor *tensor = map->parameters->items[parameter].tensor;
    size_t bytes = tensor_bytes(tensor);
    map->lent[parameter] = true;
    if (tensor->has_grad) {
        map->kept[parameter] = memory_zalloc(bytes);
        device_copy(NULL, map->kept[parameter], tensor->device, tensor->grad, bytes);
    } else {
        device_kernels(tensor->device)->elementwise->fill(tensor->grad, 0.0f, tensor_count(tensor));
    }
    reducer_mark_ready(map->reducer, parameter);
}

int used_map_start(UsedMap *map, Error *err) {
    size_t count = map->parameters->count;
    memcpy(map->ranks, map->used, count * sizeof *map->used);
    map->work =
        pg_start(map->reducer->group, pg_all_reduce(map->ranks, count, PG_I32, PG_SUM), err);
    return map->work ? 0 : -1;
}

int used_map_wait(UsedMap *map, Error *err) {
    int status = map->work ? pg_work_wait(map->work, NULL, NULL, err) : 0;
    map->work = NULL;
    memset(map->used, 0, map->parameters->count * sizeof *map->used);
    return status;
}

void used_map_return_gradients(UsedMap *map) {
    const bool reduced = map->reducer->error.status == STATUS_OK;
    for (size_t i = 0; i < map->parameters->count; i++) {
        if (!map->lent[i]) continue;
        Tensor *tensor = map->parameters->items[i].tensor;
        if (map->ranks[i] > 0)
            tensor->has_grad = true;
        else if (map->kept[i] && reduced)
            device_copy(tensor->device, tensor->grad, NULL, map->kept[i], tensor_bytes(tensor));
        map->lent[i] = false;
        free(map->kept[i]);
        map->kept[i] = NULL;
    }
}
