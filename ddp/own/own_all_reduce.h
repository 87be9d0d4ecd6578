/* own_all_reduce.h: the contract of an all-reduce of your own, by which train_ddp sums its buckets
 * of gradients: train_ddp --all-reduce FILE.
 *
 * FILE is C source, compiled by the trainer, or a shared object. It defines one table:
 *
 *     #include "ddp/own/own_all_reduce.h"
 *     const OwnAllReduce own_all_reduce = {OWN_ALL_REDUCE_VERSION, sum};
 *
 * The wrapper calls `sum` for each bucket, on every rank in the same order, on the group's
 * communication thread, while the main thread continues with backward. The buckets of a step differ
 * in size, and a count may be smaller than the number of ranks.
 *
 * sum communicates by two functions of group/process_group.h only:
 *
 *     pg_run(group, pg_send(values, count, PG_F32, to), err)
 *     pg_run(group, pg_recv(values, count, PG_F32, from), err)
 *
 * Any other collective, and pg_start, is refused with an error. Messages between two ranks arrive
 * in the order in which they were sent; count and type of a send and its receive must be equal.
 * A send may return only when its receiver has received: if all ranks send first, all may wait for
 * ever. On a ring let ranks of an even number send first and the others receive first.
 *
 * On return, values[count] has the sum over all ranks, with the same bits on every rank. The order
 * of the additions is the file's: another order than the built-in one, rank by rank, rounds
 * differently, by about 1e-7 of the values. The mean (PyTorch's default) is not part of sum: the
 * trainer multiplies by 1 / ranks afterwards. With one rank sum is not called.
 *
 * The values are this rank's, in the host's memory. sum may allocate memory and must free it. It
 * returns 0, or -1 with err filled: training then ends on all ranks with that sentence. An error of
 * pg_run is returned on as it is.
 */
#ifndef DDP_OWN_OWN_ALL_REDUCE_H
#define DDP_OWN_OWN_ALL_REDUCE_H

#include "ddp/group/process_group.h"

enum { OWN_ALL_REDUCE_VERSION = 1 };

typedef struct OwnAllReduce {
    int version; // OWN_ALL_REDUCE_VERSION
    // values[count] += those of all other ranks. Collective.
    int (*sum)(ProcessGroup *group, float *values, size_t count, Error *err);
} OwnAllReduce;

extern const OwnAllReduce own_all_reduce; // the file's

#endif
