/* own_wrapper.h: runs a user's fully sharded data parallel in the trainer (train_fsdp --wrapper
 * FILE). Included by train_fsdp only; the user's side is own_fsdp.h.
 */
#ifndef DDP_FSDP_OWN_OWN_WRAPPER_H
#define DDP_FSDP_OWN_OWN_WRAPPER_H

#include "common/base/options.h"
#include "common/train/train_config.h"

typedef struct FsdpOptions FsdpOptions; // ddp/fsdp/fsdp_options.h

// The rest of train_fsdp's main, with the file's own_fsdp in the place of fully_shard: returns the
// program's exit status.
int own_fsdp_train(const TrainConfig *config, const Options *options, const FsdpOptions *fsdp);

#endif
