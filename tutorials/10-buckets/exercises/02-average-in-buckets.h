/* 02-average-in-buckets.h: the gradients of all ranks become their mean, in few messages.
 *
 * Cut the gradients into buckets as in 01-cut-buckets.h: from the last parameter to the first, a
 * bucket that holds `cap` bytes or more is full. Copy the gradients of a bucket one after the other
 * into `memory`, reduce them at once, and copy the means back:
 *
 *     pg_run(group, pg_all_reduce(memory, floats, PG_F32, PG_AVG), err)
 *
 * A frozen parameter (requires_grad is false) has no gradient and goes into no bucket. A parameter
 * that two layers share stands in the list twice, as the same Tensor, and goes into one bucket:
 * that of its last place in the list. The last bucket is reduced, too, though it may not be full.
 */
#ifndef TUTORIALS_AVERAGE_IN_BUCKETS_H
#define TUTORIALS_AVERAGE_IN_BUCKETS_H

#include "common/nn/tensor.h"
#include "ddp/group/process_group.h"

// parameters [count], the same list on all ranks, on the CPU; memory has room for all gradients.
// tensor_count says how many floats a gradient has, tensor_bytes how many bytes. Returns 0, or -1
// with err filled.
int average_in_buckets(ProcessGroup *group, Tensor *const *parameters, size_t count, size_t cap,
                       float *memory, Error *err);

#endif
