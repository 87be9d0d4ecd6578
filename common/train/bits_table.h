/* bits_table.h: the effect of each option on the promise that DataParallel and
 * DistributedDataParallel end with equal bits: weights, buffers and optimizer state; and on the
 * promise that fully_shard ends with DistributedDataParallel's.
 *
 * Invariant: every option of the three programs is named (tests/programs/bits_table.sh).
 * The line at the start of a run (bits_announce), the table of bits.md and the tests read the
 * promise from here.
 */
#ifndef COMMON_TRAIN_BITS_TABLE_H
#define COMMON_TRAIN_BITS_TABLE_H

#include "common/train/run.h"

// When bits differ from the other program's with the same options (and defaults for options that
// only the other program has).
typedef enum BitsCondition {
    BITS_NEVER,
    BITS_INTERLEAVED,
    BITS_ROUNDED,
    BITS_UNEVEN,
    BITS_PIXELS,
    BITS_FP16,
    BITS_ACCUMULATED,
    BITS_MINED,
    BITS_THREADS,
    BITS_GPUS,
    BITS_HOOK,
    BITS_FAST_SUMS,
    BITS_SYNC_BATCH_NORM,
    BITS_WRAPPER,
    BITS_ALL_REDUCE,
    BITS_CONDITIONS
} BitsCondition;

typedef struct BitsRow {
    const char *options; // names without the dashes, "seed|sampler-seed"
    BitsCondition breaks;
    const char *when;   // the same condition in words; NULL: never
    const char *reason; // why bits differ, or why they do not
    const char *remedy; // the option of train_ddp that restores the promise; NULL: none does
} BitsRow;

// Returns the table's [*count] rows.
const BitsRow *bits_table(size_t *count);

#endif
