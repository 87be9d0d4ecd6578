/* 02-atomic-write.h: a file that is replaced atomically.
 *
 * A program may be killed at any moment, and a disk may be full. A process that opens `path` must
 * find the old file or the new one, never half of one. So:
 *
 *   1. write a temporary file in the same folder: only within one file system is rename atomic.
 *      A killed program may have left an incomplete one there already
 *   2. fflush (the program's buffer) and fsync (the system's): now it is on the disk
 *   3. fclose
 *   4. rename(temporary, path): from now on, path is the new file
 *
 * Each of these calls can fail, and so can write_content. Then the temporary file is removed, and
 * the file at path is unchanged.
 */
#ifndef TUTORIALS_ATOMIC_WRITE_H
#define TUTORIALS_ATOMIC_WRITE_H

#include <stdio.h>

// Writes the content into the file; 0, or -1 if that failed.
typedef int WriteContent(FILE *file, void *context);

// path is shorter than 200 characters. Returns 0, or -1 with path unchanged and no temporary file.
int atomic_write(const char *path, WriteContent *write_content, void *context);

#endif
