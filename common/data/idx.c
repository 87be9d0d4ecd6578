/* idx.c: reading IDX files, MNIST's format, plain or gzipped: big-endian magic 00 00 type ndim,
 * then ndim sizes of 32 bits, then the values, row-major (LeCun, Cortes, Burges, "The MNIST
 * database").
 *
 * A folder holds train-images, train-labels, t10k-images and t10k-labels, each with -idx3-ubyte
 * (labels -idx1-ubyte) or .idx3-ubyte, and .gz or not. Images are [count, h, w] in a file named
 * idx3, [count, c, h, w] in one named idx4, and [count, w] in one named idx2.
 *
 * Headers are untrusted. The buffer grows with the bytes that have been read, so a header of
 * gigabytes allocates nothing by itself. Before the first value is read, the headers are compared:
 * images with labels, test set with training set, and the values' size with the gzip file's,
 * because a few megabytes can expand to gigabytes. A file must end exactly where its header says.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/data/formats.h"

enum { IDX_BYTES = 0x08, IDX_MAX_DIMS = 4, IDX_PATH = 1024 };
static const size_t IDX_MAX_TOTAL = (size_t)8 << 30; // bytes of values in one file
// Images do not compress to a hundredth, so a gzip file with a larger ratio is rejected, unless its
// values are at most IDX_SMALL bytes.
enum { IDX_MAX_RATIO = 100, IDX_SMALL = 64 << 20 };

typedef struct IdxFile {
    const char *what; // "images" or "labels"
    char path[IDX_PATH];
    gzFile stream;
    size_t dims, size[IDX_MAX_DIMS];
    size_t item;     // bytes of one image or label
    size_t stored;   // bytes of the file
    uint8_t *values; // [size[0], item]
} IdxFile;

// The N of a file's name, "-idxN-ubyte", in the order in which they are searched for.
static const char *ranks_of(const char *what) {
    return strcmp(what, "labels") == 0 ? "1" : "342";
}

// Looks for FOLDER/PREFIX-WHAT-idxN-ubyte in all its spellings.
static bool idx_find(const char *folder, const char *prefix, const char *what,
                     char path[IDX_PATH]) {
    static const char *const forms[] = {"%s/%s-%s-idx%c-ubyte", "%s/%s-%s-idx%c-ubyte.gz",
                                        "%s/%s-%s.idx%c-ubyte", "%s/%s-%s.idx%c-ubyte.gz"};
    for (const char *rank = ranks_of(what); *rank; rank++) {
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            int length = snprintf(path, IDX_PATH, forms[i], folder, prefix, what, *rank);
            if (length < IDX_PATH && access(path, F_OK) == 0) return true;
        }
    }
    return false;
}

bool idx_present(const char *folder) {
    char path[IDX_PATH];
    return idx_find(folder, "train", "images", path) || idx_find(folder, "train", "labels", path) ||
           idx_find(folder, "t10k", "images", path) || idx_find(folder, "t10k", "labels", path);
}

// ---- one file -----------------------------------------------------------------------------------

static int idx_read_magic(IdxFile *file, Error *err) {
    uint8_t magic[4];
    size_t got;
    if (gz_read(file->stream, magic, sizeof magic, &got, err) != 0) return -1;
    if (got < sizeof magic)
        return error_set(err, STATUS_USAGE, "IDX file is truncated: %zu byte%s, no header", got,
                         format_s(got));
    if (magic[0] != 0 || magic[1] != 0)
        return error_set(err, STATUS_USAGE,
                         "not an IDX file: it starts with %02x %02x %02x %02x, not with 00 00",
                         magic[0], magic[1], magic[2], magic[3]);
    if (magic[2] != IDX_BYTES)
        return error_set(err, STATUS_USAGE,
                         "values of IDX type 0x%02x; only unsigned bytes (0x08) are read",
                         magic[2]);
    file->dims = magic[3];
    const bool labels = *ranks_of(file->what) == '1';
    if (labels ? file->dims == 1 : file->dims >= 2 && file->dims <= IDX_MAX_DIMS) return 0;
    return error_set(err, STATUS_USAGE, "%zu dimensions in an IDX file of %s, which has %s",
                     file->dims, file->what, labels ? "1" : "2 to 4");
}

static int idx_fail_truncated(const IdxFile *file, size_t bytes, Error *err) {
    return error_set(err, STATUS_USAGE, "IDX file is truncated: header says %zu %s, %zu follow",
                     file->size[0], file->what, bytes / file->item);
}

// Checks the header's size against the file's. total: bytes of values.
static int idx_check_size(const IdxFile *file, size_t total, Error *err) {
    size_t header = 4 + 4 * file->dims;
    if (gzdirect(file->stream)) { // a plain file
        if (file->stored - header >= total) return 0;
        return idx_fail_truncated(file, file->stored - header, err);
    }
    if (total <= IDX_SMALL || total / IDX_MAX_RATIO <= file->stored) return 0;
    return error_set(err, STATUS_USAGE,
                     "a gzip file of %zu bytes whose IDX header says %zu bytes of values: no "
                     "pictures become so small",
                     file->stored, total);
}

static int idx_read_header(IdxFile *file, Error *err) {
    if (idx_read_magic(file, err) != 0) return -1;
    uint8_t raw[4 * IDX_MAX_DIMS];
    size_t got, total = 1;
    if (gz_read(file->stream, raw, 4 * file->dims, &got, err) != 0) return -1;
    if (got < 4 * file->dims)
        return error_set(err, STATUS_USAGE, "IDX file is truncated inside its header");
    for (size_t d = 0; d < file->dims; d++) {
        const uint8_t *b = raw + 4 * d;
        // All were read: NOLINTNEXTLINE(*UndefinedBinaryOperatorResult)
        size_t size = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (size == 0) return error_set(err, STATUS_USAGE, "dimension %zu of the IDX file is 0", d);
        if (size > IDX_MAX_TOTAL / total)
            return error_set(err, STATUS_USAGE, "the IDX header asks for more than 8 GiB");
        total *= size;
        file->size[d] = size;
    }
    file->item = total / file->size[0];
    return idx_check_size(file, total, err);
}

static int idx_read_values(IdxFile *file, Error *err) {
    size_t total = file->size[0] * file->item, got;
    // One byte more than the header says, which must not be there.
    if (gz_read_all(file->stream, total + 1, &file->values, &got, err) != 0) return -1;
    if (got < total) return idx_fail_truncated(file, got, err);
    if (got == total)
        return gz_check_end(file->stream, file->path, 4 + 4 * file->dims + total, err);
    return error_set(err, STATUS_USAGE, "more bytes follow the %zu %s that the IDX header says",
                     file->size[0], file->what);
}

// Finds and opens one file and reads its header. The caller calls idx_close, also after an error.
static int idx_begin(const char *folder, const char *prefix, const char *what, IdxFile *file,
                     Error *err) {
    *file = (IdxFile){.what = what};
    if (!idx_find(folder, prefix, what, file->path))
        return error_set(err, STATUS_USAGE,
                         "%s: no %s-%s-idx%c-ubyte or %s-%s-idx%c-ubyte.gz in it", folder, prefix,
                         what, *ranks_of(what), prefix, what, *ranks_of(what));
    file->stream = gz_open(file->path, &file->stored, err);
    if (!file->stream) return -1;
    return idx_read_header(file, err) == 0 ? 0 : error_prefix(err, "%s", file->path);
}

static void idx_close(IdxFile *file) {
    if (file->stream) gzclose_r(file->stream);
    free(file->values);
}

// ---- a set: images and labels -------------------------------------------------------------------

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

// Refuses label 255 if no image has 254: 255 then marks images without a class, as in masks
// (pixel_folder.c), and would make 256 classes.
static int idx_check_unlabelled(const IdxFile *file, const Dataset *set, Error *err) {
    const size_t none = UINT8_MAX;
    bool next = false;
    size_t first = set->count;
    for (size_t i = 0; i < set->count; i++) {
        next = next || file->values[i] == none - 1;
        if (file->values[i] == none && first == set->count) first = i;
    }
    if (next || first == set->count) return 0;
    return error_set(
        err, STATUS_USAGE,
        "label %zu of image %zu, but no image has label %zu: is %zu no class? -- leave "
        "such images out",
        none, first, none - 1, none);
}

// Reads and stores the labels. set->classes: in, the most classes that are allowed, or 0; out, if
// it was 0, the largest label + 1.
static int idx_read_labels(IdxFile *file, Dataset *set, Error *err) {
    if (idx_read_values(file, err) != 0) return -1;
    set->labels = memory_zalloc(set->count * sizeof *set->labels);
    size_t limit = set->classes;
    if (limit == 0 && idx_check_unlabelled(file, set, err) != 0) return -1;
    for (size_t i = 0; i < set->count; i++) {
        size_t label = file->values[i];
        if (limit > 0 && label >= limit)
            return error_set(err, STATUS_USAGE,
                             "label %zu of image %zu is outside the training set's 0..%zu", label,
                             i, limit - 1);
        if (label >= set->classes) set->classes = label + 1;
        set->labels[i] = (int64_t)label;
    }
    return 0;
}

static int idx_open_split(const char *folder, const char *prefix, Dataset *set, Error *err) {
    IdxFile images, labels = {.dims = 0};
    int status = idx_begin(folder, prefix, "images", &images, err);
    if (status == 0) status = idx_begin(folder, prefix, "labels", &labels, err);
    if (status == 0) status = idx_store_sizes(&images, &labels, folder, set, err);
    if (status == 0 && (status = idx_read_labels(&labels, set, err)) != 0)
        error_prefix(err, "%s", labels.path);
    if (status == 0 && (status = idx_read_values(&images, err)) != 0)
        error_prefix(err, "%s", images.path);
    set->bytes = images.values; // the set's, also after an error
    images.values = NULL;
    idx_close(&images);
    idx_close(&labels);
    return status;
}

int idx_open(const char *folder, const DataOptions *options, DataSource *source, Error *err) {
    (void)options;
    Dataset *train = &source->train, *test = &source->test;
    if (idx_open_split(folder, "train", train, err) != 0) return -1;
    test->classes = train->classes;
    memcpy(test->shape, train->shape, sizeof test->shape);
    return idx_open_split(folder, "t10k", test, err);
}
