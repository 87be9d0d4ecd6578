/* file.h: files that are either whole or not there.
 *
 * A file is written under a temporary name in the same folder, flushed, fsynced and renamed, and
 * the folder is fsynced: a reader, a full disk or a kill at any moment sees the old file or the
 * new one, never half of one. A killed writer leaves its temporary file; the next one of the same
 * path removes it.
 */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <stdio.h>

#include "common/base/error.h"

typedef struct AtomicFile {
    FILE *file; // write here
    char path[1024];
    char temporary[1100];
} AtomicFile;

int file_begin(AtomicFile *f, const char *path, Error *err);
int file_commit(AtomicFile *f, Error *err); // on failure the temporary file is removed
void file_abandon(AtomicFile *f);

// Removes the temporary files of path that no living writer holds. file_commit does it, too.
void file_sweep(const char *path);

int file_make_folder(const char *path, Error *err); // and its parents; fine if it exists

#endif
