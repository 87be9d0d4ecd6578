/* netpbm.c: see netpbm.h. */
#include "common/data/netpbm.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"

enum { HEADER_MAX = 4096 }; // bytes, comments included

// The next byte of the header; EOF at the file's end or after HEADER_MAX bytes.
static int next_byte(FILE *file) {
    return ftell(file) < HEADER_MAX ? getc(file) : EOF;
}

// Skips white space and comments, and reads a number of at most 65536. Returns -1 if there is none.
static long read_number(FILE *file) {
    int c = next_byte(file);
    while (isspace(c) || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = next_byte(file);
        c = next_byte(file);
    }
    long number = 0;
    if (!isdigit(c)) return -1;
    for (; isdigit(c); c = next_byte(file)) {
        number = 10 * number + (c - '0');
        if (number > NETPBM_SIDE_MAX) return -1;
    }
    return isspace(c) ? number : -1; // consumes the one byte of white space that ends it
}

static int read_header(Netpbm *picture, Error *err) {
    int p = getc(picture->file), kind = getc(picture->file);
    if (p != 'P' || (kind != '5' && kind != '6'))
        return error_set(err, STATUS_USAGE,
                         "%s: no binary PPM or PGM file: these begin with P6 and P5",
                         picture->path);
    long width = read_number(picture->file), height = read_number(picture->file);
    long largest = read_number(picture->file);
    if (width <= 0 || height <= 0)
        return error_set(err, STATUS_USAGE, "%s: the header has no width and height from 1 to %d",
                         picture->path, NETPBM_SIDE_MAX);
    if (largest != 255)
        return error_set(err, STATUS_USAGE, "%s: only values from 0 to 255 are read",
                         picture->path);
    picture->channels = kind == '6' ? 3 : 1;
    picture->width = (size_t)width;
    picture->height = (size_t)height;
    return 0;
}

static int check_size(const Netpbm *picture, size_t bytes, Error *err) {
    size_t wanted = picture->channels * picture->height * picture->width;
    size_t follow = bytes - (size_t)ftell(picture->file);
    if (follow == wanted) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: the header says %zux%zu pixels, %zu byte%s; %zu byte%s follow%s",
                     picture->path, picture->width, picture->height, wanted, format_s(wanted),
                     follow, format_s(follow), follow == 1 ? "s" : "");
}

int netpbm_open(const char *path, Netpbm *picture, Error *err) {
    size_t bytes = 0;
    *picture = (Netpbm){.path = path, .file = file_open_stream(path, &bytes, err)};
    if (!picture->file) return -1;
    int status = read_header(picture, err);
    if (status == 0) status = check_size(picture, bytes, err);
    if (status != 0) netpbm_close(picture);
    return status;
}

int netpbm_read(Netpbm *picture, uint8_t *pixels, Error *err) {
    size_t plane = picture->height * picture->width, channels = picture->channels;
    uint8_t *row = memory_zalloc(picture->width * channels); // of the file: RGBRGB...
    int status = 0;
    for (size_t y = 0; y < picture->height && status == 0; y++) {
        if (fread(row, channels, picture->width, picture->file) != picture->width)
            status = error_set(err, STATUS_USAGE, "%s: row %zu cannot be read", picture->path, y);
        for (size_t x = 0; x < picture->width; x++)
            for (size_t c = 0; c < channels; c++)
                pixels[c * plane + y * picture->width + x] = row[x * channels + c];
    }
    free(row);
    return status;
}

void netpbm_close(Netpbm *picture) {
    if (picture->file) fclose(picture->file);
    picture->file = NULL;
}
