/* file.h: files that are either whole or not there.
 *
 * A file is written under a temporary name in the same folder, flushed, fsynced and renamed, and
 * the folder is fsynced: a reader, a full disk or a kill at any moment sees the old file or the new
 * one, never half of one. A killed writer leaves its temporary file; the next writer of the same
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

// Opens a new temporary file for path. Returns 0, or -1 with err filled and nothing left behind.
int file_begin(AtomicFile *f, const char *path, Error *err);
// Gives the file its name. Returns 0, or -1 with err filled. In both cases the temporary file is
// gone.
int file_commit(AtomicFile *f, Error *err);
// Removes the temporary file; path stays as it was. Does nothing after file_commit.
void file_abandon(AtomicFile *f);

// Removes the temporary files of path that no living writer holds. file_commit does it, too.
void file_sweep(const char *path);

int file_make_folder(const char *path, Error *err); // and its parents; fine if it exists

#endif
