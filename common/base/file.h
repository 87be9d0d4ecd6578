/* file.h: files that are whole or absent when they are written, and regular when they are read.
 *
 * A file is written under a temporary name in the same folder, flushed, fsynced and renamed, and
 * the folder is fsynced: a reader, a full disk or a kill at any moment sees the old file or the new
 * one, never half of one. A killed writer leaves its temporary file; the next writer of the same
 * path removes it. A path that is a symbolic link stays one: its target is written.
 *
 * A user's file is opened by file_open or file_open_stream only (tests/lint.sh checks it): open()
 * on a FIFO without a writer blocks, and /dev/zero has no end.
 */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/error.h"

enum { FILE_PATH_MAX = 1024 };

typedef struct AtomicFile {
    FILE *file;               // write here
    char path[FILE_PATH_MAX]; // the file that is replaced; links are followed
    char temporary[FILE_PATH_MAX + 76];
} AtomicFile;

// Opens a new temporary file for path. Returns 0, or -1 with err filled and no file.
int file_begin(AtomicFile *f, const char *path, Error *err);
// Renames the temporary file to path. Returns 0, or -1 with err filled and the temporary file
// removed.
int file_commit(AtomicFile *f, Error *err);
// Removes the temporary file and leaves path unchanged. No effect after file_commit.
void file_abandon(AtomicFile *f);

// Removes the temporary files of path that no living process has locked. Called by file_commit.
void file_sweep(const char *path);

// Opens a regular file for reading, without blocking. Returns a descriptor and sets *bytes (may be
// NULL) to the file's size, or returns -1 with err filled; a FIFO, folder, device or socket is
// refused: "PATH: is a FIFO, not a regular file".
int file_open(const char *path, size_t *bytes, Error *err);
// The same, but returns a stream, or NULL with err filled.
FILE *file_open_stream(const char *path, size_t *bytes, Error *err);

// Whether there is a file or folder of this path ("%s/train.bin", folder).
bool file_exists(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Writes the reason of a failed write into text and returns it: strerror, for EFBIG with the limit
// of file sizes (ulimit -f). Programs ignore SIGXFSZ (before_main.c), so such a write fails instead
// of ending the process.
enum { FILE_CAUSE_ROOM = 160 };
const char *file_cause(int cause, char text[FILE_CAUSE_ROOM]);

// Resolves symbolic links in the last component of path; the target need not exist. Returns 0, or
// -1 with err filled: a loop of links, or too long a path.
int file_follow_links(const char *path, char target[FILE_PATH_MAX], Error *err);

// Creates the folder and its parents, as mkdir -p. Returns 0, also if it exists, or -1 with err
// filled.
int file_make_folder(const char *path, Error *err);

#endif
