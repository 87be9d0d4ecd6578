/* agree_kernels.h: all ranks compute attention by the same kernels.
 *
 * PyTorch has no such check: card and library determine its kernels. Here a device tries its
 * attention on tensor cores first (common/nn/attention_choice.h), and a rank may refuse it.
 */
#ifndef DDP_AGREE_KERNELS_H
#define DDP_AGREE_KERNELS_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"

// Collective, if the module has attentions on GPUs; no effect otherwise. One rank's refusal
// applies to all ranks, and rank 0 prints it once. Returns 0, or -1 with err filled.
int agree_kernels(Module *module, ProcessGroup *group, Error *err);

#endif
