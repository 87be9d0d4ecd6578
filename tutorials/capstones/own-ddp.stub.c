/* A DistributedDataParallel of your own. The task, and every function that you may use, is in
 * ddp/own/own_ddp.h and the headers that it names. To run it:
 *     ddprun --nproc-per-node 2 train_ddp --wrapper tutorials/work/capstones/own-ddp.c --steps 20
 */
#include <stdlib.h>

#include "ddp/own/own_ddp.h"

typedef struct Ddp {
    Module *model;
    ProcessGroup *group;
} Ddp;

static void *own_open(Module *model, ProcessGroup *group, ReduceOp op, size_t bucket_bytes,
                      Error *err) {
    Ddp *ddp = malloc(sizeof *ddp);
    *ddp = (Ddp){model, group};
    return ddp; // every rank begins with weights of its own
}

static int own_before_forward(void *self, bool reduces, Error *err) {
    return 0;
}

static int own_finish_backward(void *self, Error *err) {
    return 0; // every rank continues with gradients of its own
}

static int own_sync_buffers(void *self, Error *err) {
    return 0;
}

const OwnDdp own_ddp = {OWN_DDP_VERSION,     own_open,         own_before_forward,
                        own_finish_backward, own_sync_buffers, free};
