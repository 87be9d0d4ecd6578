/* bits_table.h: the effect of each option on the promise that DataParallel and
 * DistributedDataParallel end with equal bits: weights, buffers and optimizer state.
 *
 * Invariant: every option of train_dp and train_ddp is named (tests/programs/bits_table.sh).
 * The line at the start of a run (bits.c), the table of bits.md and the tests read the
 * promise from here.
 */
#ifndef COMMON_TRAIN_BITS_TABLE_H
#define COMMON_TRAIN_BITS_TABLE_H

#include "common/train/run.h"

// Whether bits differ from the other program's with the same options (and defaults for options that
// only the other program has).
typedef bool BitsCondition(const Run *run);

typedef struct BitsRow {
    const char *options;   // names without the dashes, "seed|sampler-seed"
    BitsCondition *breaks; // NULL: never
    const char *when;      // the same condition in words; NULL: never
    const char *reason;    // why bits differ, or why they do not
    const char *remedy;    // the option of train_ddp that restores the promise; NULL: none does
} BitsRow;

// Returns the table's [*count] rows.
const BitsRow *bits_table(size_t *count);

#endif
