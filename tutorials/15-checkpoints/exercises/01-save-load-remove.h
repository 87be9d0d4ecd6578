/* 01-save-load-remove.h: one file, written once, read by all, and then removed.
 *
 * Rank 0 saves, every rank loads what rank 0 has saved, and at the end rank 0 removes the file.
 * Nobody may load before the file is there, and it may not be removed before all have loaded. The
 * ranks are as fast as they are; what keeps them in order is
 *
 *     pg_run(group, pg_barrier(), err)
 *
 * which returns on no rank before all have called it. If it fails, nobody knows how far the others
 * are: then nothing more is done with the file.
 */
#ifndef TUTORIALS_SAVE_LOAD_REMOVE_H
#define TUTORIALS_SAVE_LOAD_REMOVE_H

#include "ddp/group/process_group.h"

typedef struct Storage {
    void *context;
    void (*save)(void *context);
    void (*load)(void *context);
    void (*remove)(void *context);
} Storage;

// Called by all ranks. Returns 0, or -1 with err filled.
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err);

#endif
