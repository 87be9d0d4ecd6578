/* own_wrapper.h: runs a user's DistributedDataParallel in the trainer (train_ddp --wrapper FILE).
 *
 * Included by train_ddp and its options only. The user's side is own_ddp.h and own_all_reduce.h.
 */
#ifndef DDP_OWN_OWN_WRAPPER_H
#define DDP_OWN_OWN_WRAPPER_H

#include "common/base/options.h"
#include "common/train/train_config.h"
#include "ddp/group/process_group.h"

typedef struct DdpOptions DdpOptions; // ddp/ddp_options.h

typedef struct OwnFiles { // the options --wrapper and --all-reduce; NULL: not given
    const char *wrapper, *all_reduce;
    // Their tables, set by own_files_check.
    const struct OwnDdp *ddp;
    const struct OwnAllReduce *sum;
} OwnFiles;

void own_files_options(Options *options, OwnFiles *files);
// Rejects options that a user's file replaces, and loads the files. first_feature: the table's row
// of the first option of a feature; all later rows are features', too. Returns 0, or -1 with err
// filled.
int own_files_check(OwnFiles *files, const Options *options, size_t first_feature, Error *err);

// Sums the group's buckets by the file's own_all_reduce from now on. Returns 0, or -1 with err
// filled. No effect without --all-reduce.
int own_all_reduce_use(const OwnFiles *files, ProcessGroup *group, Error *err);

// The rest of train_ddp's main, with the file's own_ddp in the place of distributed_data_parallel:
// returns the program's exit status.
int own_ddp_train(const TrainConfig *config, const Options *options, const DdpOptions *ddp);

#endif
