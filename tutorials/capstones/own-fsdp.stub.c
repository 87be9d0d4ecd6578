/* A fully sharded data parallel of your own. The task, and every function that you may use, is in
 * ddp/fsdp/own/own_fsdp.h and the headers that it names. To run it:
 *     ddprun --nproc-per-node 2 train_fsdp --wrapper tutorials/work/capstones/own-fsdp.c --steps 20
 */
#include <stdlib.h>

#include "ddp/fsdp/own/own_fsdp.h"

typedef struct Fsdp {
    const OwnFsdpUnit *units; // [count], the root last
    size_t count;
    ProcessGroup *group;
} Fsdp;

static void *own_open(Module *model, const OwnFsdpUnit *units, size_t count, ProcessGroup *group,
                      ReduceOp op, Error *err) {
    Fsdp *fsdp = malloc(sizeof *fsdp);
    *fsdp = (Fsdp){units, count, group};
    return fsdp; // every rank has a whole model, with weights of its own
}

static int own_before_forward(void *self, size_t unit, Error *err) {
    return 0;
}

static int own_after_forward(void *self, size_t unit, bool backward_follows, Error *err) {
    return 0;
}

static int own_before_backward(void *self, size_t unit, Error *err) {
    return 0;
}

static int own_after_backward(void *self, size_t unit, bool complete, Error *err) {
    return 0;
}

static int own_finish_backward(void *self, Error *err) {
    return 0; // the optimizer updates all weights on every rank
}

const OwnFsdp own_fsdp = {
    OWN_FSDP_VERSION,    own_open,           own_before_forward,  own_after_forward,
    own_before_backward, own_after_backward, own_finish_backward, free};
