/* All are started, from the last to the first, and then waited for. */
#include <stdlib.h>

int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    PgWork **works = malloc(count * sizeof *works);
    size_t started = 0;
    int status = 0;
    for (size_t k = count; k-- > 0 && status == 0;) {
        Tensor *p = parameters[k];
        bool again = false;
        for (size_t i = k + 1; i < count; i++) again = again || parameters[i] == p;
        if (again || !p->requires_grad) continue;
        works[started] =
            pg_start(group, pg_all_reduce(p->grad, tensor_count(p), PG_F32, PG_AVG), err);
        if (works[started])
            started++;
        else
            status = -1;
    }
    while (started > 0)
        if (pg_work_wait(works[--started], NULL, NULL, err) != 0) status = -1;
    free(works);
    return status;
}
