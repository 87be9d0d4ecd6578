/* 01-save-load-remove.h: one file, written once, read by all, and then removed.
 *
 * Rank 0 saves a file, every rank loads it, and at the end rank 0 removes it. No rank may load
 * before the file exists, and it may not be removed before all have loaded. Ranks run at different
 * speeds; the order needs
 *
 *     pg_run(group, pg_barrier(), err)
 *
 * which returns on no rank before all have called it. If it fails, the state of the other ranks is
 * unknown: then do not touch the file any more.
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
