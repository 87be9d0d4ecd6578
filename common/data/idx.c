/* idx.c: reading IDX files, which are untrusted input.
 *
 * Headers are untrusted. The buffer grows with the bytes that have been read, so a header of
 * gigabytes allocates nothing by itself. Before the first value is read, the headers are compared:
 * images with labels, test set with training set, and the values' size with the gzip file's,
 * because a few megabytes can expand to gigabytes. A file must end exactly where its header says;
 * reading to the end also makes zlib verify the gzip checksum. zlib reads plain files unchanged, so
 * both take the same path.
 */
#include "common/data/idx.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"

enum { IDX_BYTES = 0x08, IDX_MAX_DIMS = 4, IDX_FIRST_READ = 1 << 20 };
static const size_t IDX_MAX_TOTAL = (size_t)8 << 30; // bytes of values in one file
// Images do not compress to a hundredth, so a gzip file with a larger ratio is rejected, unless its
// values are at most IDX_SMALL bytes.
enum { IDX_MAX_RATIO = 100, IDX_SMALL = 64 << 20 };

typedef struct IdxFile {
    char path[1024];
    gzFile stream;
    size_t dims, size[IDX_MAX_DIMS];
    size_t item;     // bytes of one image or label
    size_t stored;   // bytes of the file
    uint8_t *values; // [size[0], item]
} IdxFile;

// Looks for FOLDER/STEM-idxN-ubyte in all its spellings, N being each digit of `ranks`.
static bool idx_find(const char *folder, const char *stem, const char *ranks, char *path,
                     size_t room) {
    static const char *const forms[] = {"%s/%s-idx%c-ubyte", "%s/%s-idx%c-ubyte.gz",
                                        "%s/%s.idx%c-ubyte", "%s/%s.idx%c-ubyte.gz"};
    for (const char *rank = ranks; *rank; rank++) {
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct stat st;
            int length = snprintf(path, room, forms[i], folder, stem, *rank);
            if (length >= 0 && (size_t)length < room && stat(path, &st) == 0) return true;
        }
    }
    return false;
}

bool idx_present(const char *folder) {
    char path[1024];
    return idx_find(folder, "train-images", "342", path, sizeof path) ||
           idx_find(folder, "train-labels", "1", path, sizeof path) ||
           idx_find(folder, "t10k-images", "342", path, sizeof path) ||
           idx_find(folder, "t10k-labels", "1", path, sizeof path);
}

// Reads up to `bytes`; *got is less only at the end of the file. Returns -1 when the file is
// broken.
static int idx_read(IdxFile *file, uint8_t *into, size_t bytes, size_t *got, Error *err) {
    *got = 0;
    while (*got < bytes) {
        size_t wanted = bytes - *got < (1u << 30) ? bytes - *got : 1u << 30;
        int n = gzread(file->stream, into + *got, (unsigned)wanted);
        if (n == 0) break;
        if (n > 0) *got += (size_t)n;
        if (n < 0) break;
    }
    int zerror;
    const char *text = gzerror(file->stream, &zerror);
    if (zerror == Z_OK || zerror == Z_STREAM_END) return 0;
    if (zerror == Z_BUF_ERROR)
        return error_set(err, STATUS_USAGE, "%s: the gzip file is truncated", file->path);
    if (zerror == Z_ERRNO)
        return error_set(err, STATUS_USAGE, "%s: %s", file->path, strerror(errno));
    return error_set(err, STATUS_USAGE, "%s: the gzip file is corrupt: %s", file->path, text);
}

static int idx_read_magic(IdxFile *file, Error *err) {
    uint8_t magic[4];
    size_t got;
    if (idx_read(file, magic, sizeof magic, &got, err) != 0) return -1;
    if (got < sizeof magic)
        return error_set(err, STATUS_USAGE, "%s: IDX file is truncated: %zu byte%s, no header",
                         file->path, got, format_s(got));
    if (magic[0] != 0 || magic[1] != 0)
        return error_set(err, STATUS_USAGE,
                         "%s: not an IDX file: it starts with %02x %02x %02x %02x, not with 00 00",
                         file->path, magic[0], magic[1], magic[2], magic[3]);
    if (magic[2] != IDX_BYTES)
        return error_set(err, STATUS_USAGE,
                         "%s: values of IDX type 0x%02x; only unsigned bytes (0x08) are read",
                         file->path, magic[2]);
    file->dims = magic[3];
    return 0;
}

static int idx_fail_truncated(const IdxFile *file, size_t bytes, const char *what, Error *err) {
    return error_set(err, STATUS_USAGE, "%s: IDX file is truncated: header says %zu %s, %zu follow",
                     file->path, file->size[0], what, bytes / file->item);
}

// Checks the header's size against the file's. total: bytes of values.
static int idx_check_size(const IdxFile *file, size_t total, const char *what, Error *err) {
    size_t header = 4 + 4 * file->dims;
    if (gzdirect(file->stream)) { // a plain file
        if (file->stored - header >= total) return 0;
        return idx_fail_truncated(file, file->stored - header, what, err);
    }
    if (total <= IDX_SMALL || total / IDX_MAX_RATIO <= file->stored) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: a gzip file of %zu bytes whose IDX header says %zu bytes of values: no "
                     "pictures become so small",
                     file->path, file->stored, total);
}

static int idx_read_header(IdxFile *file, size_t min_dims, size_t max_dims, Error *err) {
    if (idx_read_magic(file, err) != 0) return -1;
    if (file->dims < min_dims || file->dims > max_dims)
        return error_set(err, STATUS_USAGE, "%s: %zu dimensions in an IDX file of %s", file->path,
                         file->dims,
                         max_dims == 1 ? "labels, which has 1" : "images, which has 2 to 4");
    uint8_t raw[4 * IDX_MAX_DIMS];
    size_t got, total = 1;
    if (idx_read(file, raw, 4 * file->dims, &got, err) != 0) return -1;
    if (got < 4 * file->dims)
        return error_set(err, STATUS_USAGE, "%s: IDX file is truncated inside its header",
                         file->path);
    for (size_t d = 0; d < file->dims; d++) {
        const uint8_t *b = raw + 4 * d;
        // All were read: NOLINTNEXTLINE(*UndefinedBinaryOperatorResult)
        size_t size = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (size == 0)
            return error_set(err, STATUS_USAGE, "%s: dimension %zu of the IDX file is 0",
                             file->path, d);
        if (size > IDX_MAX_TOTAL / total)
            return error_set(err, STATUS_USAGE, "%s: the IDX header asks for more than 8 GiB",
                             file->path);
        total *= size;
        file->size[d] = size;
    }
    file->item = total / file->size[0];
    return idx_check_size(file, total, max_dims == 1 ? "labels" : "images", err);
}

static int idx_read_values(IdxFile *file, const char *what, Error *err) {
    size_t total = file->size[0] * file->item, have = 0;
    while (have < total) {
        size_t room = have == 0 ? IDX_FIRST_READ : 2 * have;
        if (room > total) room = total;
        file->values = memory_grow(file->values, room, 1);
        size_t got;
        if (idx_read(file, file->values + have, room - have, &got, err) != 0) return -1;
        if (got < room - have) return idx_fail_truncated(file, have + got, what, err);
        have = room;
    }
    uint8_t extra;
    size_t got;
    if (idx_read(file, &extra, 1, &got, err) != 0) return -1;
    if (got > 0)
        return error_set(err, STATUS_USAGE,
                         "%s: more bytes follow the %zu %s that the IDX header says", file->path,
                         file->size[0], what);
    return 0;
}

// Finds and opens one file and reads its header. The caller calls idx_close, also after an error.
static int idx_begin(const char *folder, const char *stem, bool labels, IdxFile *file, Error *err) {
    const char *ranks = labels ? "1" : "342";
    *file = (IdxFile){.dims = 0};
    if (!idx_find(folder, stem, ranks, file->path, sizeof file->path))
        return error_set(err, STATUS_USAGE, "%s: no %s-idx%c-ubyte or %s-idx%c-ubyte.gz in it",
                         folder, stem, ranks[0], stem, ranks[0]);
    int fd = file_open(file->path, &file->stored, err);
    if (fd < 0) return -1;
    file->stream = gzdopen(fd, "rb");
    CHECK(file->stream, "no stream for %s", file->path);
    return idx_read_header(file, labels ? 1 : 2, labels ? 1 : IDX_MAX_DIMS, err);
}

static void idx_close(IdxFile *file) {
    if (file->stream) gzclose_r(file->stream);
    free(file->values);
}

// Compares the headers and stores the set's sizes. set->shape: in, the training set's shape, or
// zeros for the training set itself; out, the shape.
static int idx_store_sizes(const IdxFile *images, const IdxFile *labels, const char *folder,
                           Dataset *set, Error *err) {
    size_t shape[3], first = 3 - (images->dims - 1); // a file without channels or rows has one
    for (size_t d = 0; d < 3; d++) shape[d] = d < first ? 1 : images->size[d - first + 1];
    if (shape[0] > 4)
        return error_set(err, STATUS_USAGE, "%s: images of %zu channels; at most 4 are read",
                         images->path, shape[0]);
    if (labels->size[0] != images->size[0])
        return error_set(err, STATUS_USAGE, "%s: %zu label%s for the %zu image%s of %s",
                         labels->path, labels->size[0], format_s(labels->size[0]), images->size[0],
                         format_s(images->size[0]), images->path);
    if (set->shape[0] > 0 && memcmp(set->shape, shape, sizeof shape) != 0)
        return error_set(err, STATUS_USAGE,
                         "%s: training images are %zux%zux%zu but test images %zux%zux%zu", folder,
                         set->shape[0], set->shape[1], set->shape[2], shape[0], shape[1], shape[2]);
    memcpy(set->shape, shape, sizeof shape);
    set->count = images->size[0];
    return 0;
}

// Stores the labels. set->classes: in, the most classes that are allowed, or 0; out, if it was 0,
// the largest label + 1.
static int idx_store_labels(const IdxFile *file, Dataset *set, Error *err) {
    set->labels = memory_zalloc(set->count * sizeof *set->labels);
    size_t limit = set->classes;
    for (size_t i = 0; i < set->count; i++) {
        size_t label = file->values[i];
        if (limit > 0 && label >= limit)
            return error_set(err, STATUS_USAGE,
                             "%s: label %zu of image %zu is outside the training set's 0..%zu",
                             file->path, label, i, limit - 1);
        if (label >= set->classes) set->classes = label + 1;
        set->labels[i] = (int64_t)label;
    }
    return 0;
}

static int idx_read_split(IdxFile *images, IdxFile *labels, const char *folder, Dataset *set,
                          Error *err) {
    if (idx_store_sizes(images, labels, folder, set, err) != 0) return -1;
    if (idx_read_values(labels, "labels", err) != 0 || idx_store_labels(labels, set, err) != 0)
        return -1;
    if (idx_read_values(images, "images", err) != 0) return -1;
    set->bytes = images->values;
    images->values = NULL;
    return 0;
}

static int idx_open_split(const char *folder, const char *prefix, Dataset *set, Error *err) {
    IdxFile images, labels = {.dims = 0};
    char stem[32];
    snprintf(stem, sizeof stem, "%s-images", prefix);
    int status = idx_begin(folder, stem, false, &images, err);
    snprintf(stem, sizeof stem, "%s-labels", prefix);
    if (status == 0) status = idx_begin(folder, stem, true, &labels, err);
    if (status == 0) status = idx_read_split(&images, &labels, folder, set, err);
    idx_close(&images);
    idx_close(&labels);
    return status;
}

int idx_open(const char *folder, DataSource *source, Error *err) {
    Dataset *train = &source->train, *test = &source->test;
    if (idx_open_split(folder, "train", train, err) != 0) return -1;
    test->classes = train->classes;
    memcpy(test->shape, train->shape, sizeof test->shape);
    return idx_open_split(folder, "t10k", test, err);
}
