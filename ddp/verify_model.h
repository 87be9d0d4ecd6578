/* verify_model.h: checks that all ranks hold the same model, with at least one trainable parameter
 * and no parameter of another wrapper, and that the trainable ones are on devices of one kind.
 *
 * PyTorch compares the number of parameters, then their sizes. This check also compares names,
 * dtypes and frozen parameters, and every rank's error names the first differing tensor.
 */
#ifndef DDP_VERIFY_MODEL_H
#define DDP_VERIFY_MODEL_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

// Collective. Returns 0, or -1 with err filled: on every rank if the models differ, else on the
// rank whose parameters are refused.
int verify_model(const NamedTensors *parameters, const NamedTensors *buffers, ProcessGroup *group,
                 Error *err);

#endif
