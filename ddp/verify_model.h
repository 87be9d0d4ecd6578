/* verify_model.h: do all ranks hold the same model, and is there something to train in it?
 *
 * PyTorch compares the number of parameters, then their sizes. Here names, dtypes and what is
 * frozen count as well, and every rank gets an error that names the first tensor that differs.
 */
#ifndef DDP_VERIFY_MODEL_H
#define DDP_VERIFY_MODEL_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

// Collective. Returns 0, or -1 with err filled on every rank.
int verify_model(const NamedTensors *parameters, const NamedTensors *buffers, ProcessGroup *group,
                 Error *err);

#endif
