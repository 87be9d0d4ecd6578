/* ranks.c: collectives that end the program on an error, and a look at the replicas. */
#include "tutorials/ranks.h"

#include <string.h>

#include "common/base/memory.h"

void ranks_run(ProcessGroup *group, Collective collective) {
    Error err = {0};
    if (pg_run(group, collective, &err) != 0) error_exit(&err);
}

// Whether this rank's parameter has other bits than rank 0's. Collective.
static bool is_different(ProcessGroup *group, const Tensor *mine) {
    size_t bytes = tensor_bytes(mine);
    void *other = memory_zalloc(bytes);
    memcpy(other, mine->data, bytes);
    ranks_run(group, pg_broadcast(other, bytes, PG_U8, 0)); // now it is rank 0's
    bool different = memcmp(other, mine->data, bytes) != 0;
    free(other);
    return different;
}

void ranks_print_whether_equal(ProcessGroup *group, Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    size_t different = 0;
    for (size_t k = 0; k < parameters.count; k++) {
        int32_t differs = is_different(group, parameters.items[k].tensor);
        ranks_run(group, pg_all_reduce(&differs, 1, PG_I32, PG_MAX)); // on any rank?
        different += differs != 0;
    }
    if (pg_rank(group) == 0 && different == 0) printf("replicas: equal\n");
    if (pg_rank(group) == 0 && different > 0)
        printf("replicas: DIFFERENT in %zu of %zu parameters\n", different, parameters.count);
    named_tensors_free(&parameters);
}
