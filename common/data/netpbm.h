/* netpbm.h: reading pictures: binary PPM ("P6": red, green, blue) and PGM ("P5": gray), a byte per
 * value. The header is text; the pixels follow it, row by row. The file's length must be exactly
 * that of its header, which is checked before pixels are read.
 */
#ifndef COMMON_DATA_NETPBM_H
#define COMMON_DATA_NETPBM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"

enum { NETPBM_SIDE_MAX = 65536 }; // pixels

typedef struct Netpbm {
    const char *path; // the caller's
    FILE *file;
    size_t channels; // 3 or 1
    size_t height, width;
} Netpbm;

// Opens a file and reads its header. Returns 0, or -1 with err filled and the file closed.
int netpbm_open(const char *path, Netpbm *picture, Error *err);
// Reads the pixels: pixels[channels, height, width]. Returns 0, or -1 with err filled.
int netpbm_read(Netpbm *picture, uint8_t *pixels, Error *err);
void netpbm_close(Netpbm *picture);

#endif
