/* own_wrapper.h: runs a user's DataParallel in the trainer (train_dp --wrapper FILE). Included by
 * train_dp and its options only; the user's side is own_dp.h.
 */
#ifndef DP_OWN_OWN_WRAPPER_H
#define DP_OWN_OWN_WRAPPER_H

#include "common/train/train_config.h"
#include "dp/dp_options.h"

// Loads --wrapper's file, if given, and rejects options that it replaces. Returns 0, or -1 with err
// filled.
int own_dp_load(DpOptions *dp, const Options *options, Error *err);

// The rest of train_dp's main, with the file's own_dp in the place of data_parallel: returns the
// program's exit status.
int own_dp_train(const TrainConfig *config, const Options *options, const DpOptions *dp);

#endif
