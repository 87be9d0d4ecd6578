/* All buffers travel in one message. */
#include <stdlib.h>
#include <string.h>
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err) {
    if (*changed) {
        size_t bytes = 0;
        for (size_t k = 0; k < count; k++) bytes += tensor_bytes(buffers[k]);
        char *all = malloc(bytes), *p = all;
        for (size_t k = 0; k < count; p += tensor_bytes(buffers[k]), k++)
            memcpy(p, buffers[k]->data, tensor_bytes(buffers[k]));
        int failed = pg_run(group, pg_broadcast(all, bytes, PG_U8, 0), err);
        p = all;
        for (size_t k = 0; k < count && !failed; p += tensor_bytes(buffers[k]), k++)
            memcpy(buffers[k]->data, p, tensor_bytes(buffers[k]));
        free(all);
        if (failed) return -1;
        *changed = false;
    }
    if (training) *changed = true;
    return 0;
}
