/* gz_file.c: reading files that are plain or gzipped: zlib reads plain files unchanged, so both
 * take the same path. Reading to the end makes zlib verify the checksum.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/data/formats.h"

enum { FIRST_READ = 1 << 20 };

gzFile gz_open(const char *path, size_t *stored, Error *err) {
    int fd = file_open(path, stored, err);
    gzFile file = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    CHECK(fd < 0 || file, "no stream for %s", path);
    return file;
}

int gz_read(gzFile file, void *into, size_t bytes, size_t *got, Error *err) {
    int status;
    *got = gzfread(into, 1, bytes, file);
    const char *text = gzerror(file, &status);
    if (status == Z_OK || status == Z_STREAM_END) return 0;
    if (status == Z_BUF_ERROR) return error_set(err, STATUS_USAGE, "the gzip file is truncated");
    if (status == Z_ERRNO) return error_set(err, STATUS_USAGE, "%s", strerror(errno));
    return error_set(err, STATUS_USAGE, "the gzip file is corrupt: %s", text);
}

int gz_read_all(gzFile file, size_t limit, uint8_t **bytes, size_t *count, Error *err) {
    size_t got, room = *count = 0;
    while (*count == room && room < limit) {
        room = room == 0 ? FIRST_READ : 2 * room;
        if (room > limit) room = limit;
        *bytes = memory_grow(*bytes, room, 1);
        if (gz_read(file, *bytes + *count, room - *count, &got, err) != 0) return -1;
        *count += got;
    }
    return 0;
}

int gz_check_end(gzFile file, const char *path, size_t unpacked, Error *err) {
    size_t stored, size = 0;
    if (gzdirect(file)) return 0;
    uint8_t end[4];
    const int fd = file_open(path, &stored, err);
    if (fd < 0) return -1;
    const bool read = stored > sizeof end &&
                      pread(fd, end, sizeof end, (off_t)(stored - sizeof end)) == sizeof end;
    close(fd);
    if (read) size = (size_t)end[3] << 24 | (size_t)end[2] << 16 | (size_t)end[1] << 8 | end[0];
    if (size <= unpacked) return 0;
    return error_set(err, STATUS_USAGE, "bytes that are not gzip's follow the gzip stream");
}
