/* 02-average-in-buckets.h: the gradients of all ranks become their mean, in few messages.
 *
 * Cut the gradients into buckets as in 01-cut-buckets.h: from the last parameter to the first, a
 * bucket that holds `cap` bytes or more is full. Copy the gradients of a bucket one after the other
 * into `memory`, reduce them by one call, and copy the means back:
 *
 *     pg_run(group, pg_all_reduce(memory, floats, PG_F32, PG_AVG), err)
 *
 * A frozen parameter (requires_grad is false) has no gradient and no bucket. A parameter that two
 * layers share is in the list twice, as the same Tensor, and has one bucket: that of its last
 * position in the list. The last bucket is reduced, too, also if it is not full.
 */
#ifndef TUTORIALS_AVERAGE_IN_BUCKETS_H
#define TUTORIALS_AVERAGE_IN_BUCKETS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// parameters [count], the same list on all ranks, on the CPU; memory has room for all gradients.
// tensor_count returns a gradient's size in floats, tensor_bytes in bytes. Returns 0, or -1 with
// err filled.
int average_in_buckets(ProcessGroup *group, Tensor *const *parameters, size_t count, size_t cap,
                       float *memory, Error *err);

#endif
