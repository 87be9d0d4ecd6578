/* ddp_naive.c: the shortest DistributedDataParallel: one all-reduce for each gradient, after
 * backward and without overlap.
 */
#include <stdlib.h>

#include "ddp/own/own_ddp.h"

typedef struct Ddp {
    Module *model;
    ProcessGroup *group;
    ReduceOp op;
} Ddp;

static int broadcast(Ddp *ddp, int which, Error *err) {
    NamedTensors all = module_tensors(ddp->model, which);
    int status = 0;
    for (size_t i = 0; i < all.count && status == 0; i++) {
        Tensor *tensor = all.items[i].tensor;
        status =
            pg_run(ddp->group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0), err);
    }
    named_tensors_free(&all);
    return status;
}

static void *own_open(Module *model, ProcessGroup *group, ReduceOp op, size_t bucket_bytes,
                      Error *err) {
    Ddp *ddp = malloc(sizeof *ddp);
    (void)bucket_bytes;
    *ddp = (Ddp){model, group, op};
    if (broadcast(ddp, MODULE_STATE, err) == 0) return ddp;
    free(ddp);
    return NULL;
}

static int own_sync_buffers(void *self, Error *err) {
    return broadcast(self, MODULE_BUFFERS, err);
}

static int own_before_forward(void *self, bool reduces, Error *err) {
    return reduces ? own_sync_buffers(self, err) : 0;
}

static int own_finish_backward(void *self, Error *err) {
    Ddp *ddp = self;
    NamedTensors all = module_tensors(ddp->model, MODULE_PARAMETERS);
    int status = 0;
    for (size_t i = 0; i < all.count && status == 0; i++) {
        Tensor *p = all.items[i].tensor;
        if (!p->requires_grad) continue;
        if (!p->has_grad)
            status = error_set(err, STATUS_FAILED, "%s has no gradient", all.items[i].name);
        else
            status =
                pg_run(ddp->group, pg_all_reduce(p->grad, tensor_count(p), PG_F32, ddp->op), err);
    }
    named_tensors_free(&all);
    return status;
}

const OwnDdp own_ddp = {OWN_DDP_VERSION,     own_open,         own_before_forward,
                        own_finish_backward, own_sync_buffers, free};
