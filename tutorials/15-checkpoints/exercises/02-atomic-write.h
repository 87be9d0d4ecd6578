/* 02-atomic-write.h: a file that is whole, or not there.
 *
 * A program may be killed at any moment, and a disk may be full. A process that opens `path` must
 * find the old file or the new one, never half of one. So:
 *
 *   1. write into another file of the same folder: only within one file system is rename atomic.
 *      It may be there already, half of it, from a program that was killed
 *   2. fflush (the program's buffer) and fsync (the system's): now it is on the disk
 *   3. fclose
 *   4. rename(temporary, path): from now on, path is the new file
 *
 * Each of these calls can fail, and so can write_content. Then the temporary file is removed, and
 * what was at path stays as it was.
 */
#ifndef TUTORIALS_ATOMIC_WRITE_H
#define TUTORIALS_ATOMIC_WRITE_H

#include <stdio.h>

// Writes the content into the file; 0, or -1 if that failed.
typedef int WriteContent(FILE *file, void *context);

// path is shorter than 200 characters. Returns 0, or -1 with path as it was and no other file left.
int atomic_write(const char *path, WriteContent *write_content, void *context);

#endif
