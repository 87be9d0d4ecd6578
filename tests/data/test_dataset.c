/* test_dataset.c: data sets from valid and invalid files, and the shipped digits.
 *
 * The tests write tiny files into a folder of their own. Each invalid file must give one line that
 * names the mistake.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "common/data/dataset.h"
#include "tests/rigs/peak_memory.h"
#include "tests/rigs/temp_folder.h"

// A C string literal that may contain NULs, and its length.
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

typedef struct Folder {
    char path[64];
} Folder;

static int folder_make(void **state) {
    Folder *folder = calloc(1, sizeof *folder);
    *state = folder;
    if (!folder) return -1;
    strcpy(folder->path, "test_dataset.XXXXXX");
    temp_folder_descriptors = temp_folder_count();
    return mkdtemp(folder->path) ? 0 : -1;
}

static const char *const FILES[] = {
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
    "train-images.idx3-ubyte",
    "train-images-idx4-ubyte",
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
    "digits",
    "cifar-10-batches-bin",
};

static void folder_clear(const char *path) {
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char name[200];
        assert_true(snprintf(name, sizeof name, "%s/%s", path, FILES[i]) < (int)sizeof name);
        struct stat st;
        if (stat(name, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) folder_clear(name);
        remove(name);
    }
}

static int folder_remove(void **state) {
    Folder *folder = *state;
    folder_clear(folder->path);
    return temp_folder_remove(state); // the first field of Folder is its path
}

static void write_file(const char *folder, const char *name, const uint8_t *bytes, size_t count) {
    char path[200];
    assert_true(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

// Compresses into memory. Returns the number of bytes.
static size_t gzip(const uint8_t *bytes, size_t count, uint8_t *out, size_t room) {
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)bytes, .avail_in = (unsigned)count};
    z.next_out = out;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t length = z.total_out;
    deflateEnd(&z);
    return length;
}

// Four training images and two for testing, 2x3 pixels each.
#define TRAIN_IMAGES                     \
    "\0\0\x08\3\0\0\0\4\0\0\0\2\0\0\0\3" \
    "\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b\xfa\xfb\xfc\xfd\xfe\xff\x20\x30\x40\x50\x60\x70"
#define TRAIN_LABELS "\0\0\x08\1\0\0\0\4\0\2\1\1"
#define TEST_IMAGES                      \
    "\0\0\x08\3\0\0\0\2\0\0\0\2\0\0\0\3" \
    "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b"
#define TEST_LABELS "\0\0\x08\1\0\0\0\2\2\0"

static void write_good_idx(const char *folder) {
    folder_clear(folder);
    write_file(folder, "train-images-idx3-ubyte", BYTES(TRAIN_IMAGES));
    write_file(folder, "train-labels-idx1-ubyte", BYTES(TRAIN_LABELS));
    write_file(folder, "t10k-images-idx3-ubyte", BYTES(TEST_IMAGES));
    write_file(folder, "t10k-labels-idx1-ubyte", BYTES(TEST_LABELS));
}

static DataSource *open_good(const char *name) {
    Error err = {0};
    DataSource *source = dataset_open(name, 1, &err);
    if (!source) fail_msg("%s", err.message);
    return source;
}

static void expect_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.9g, not %.9g", got, want);
}

static void expect_error(const char *name, const char *fragment) {
    Error err = {0};
    DataSource *source = dataset_open(name, 1, &err);
    if (source) fail_msg("opened, but '%s' was to come", fragment);
    assert_int_equal(err.status, STATUS_USAGE);
    if (!strstr(err.message, fragment)) fail_msg("'%s' lacks '%s'", err.message, fragment);
    assert_null(strchr(err.message, '\n'));
}

static void expect_tiny_idx(const char *folder) {
    DataSource *s = open_good(folder);
    assert_string_equal(s->name, "idx");
    assert_true(isnan(s->loss_floor));
    assert_int_equal(s->train.count, 4);
    assert_int_equal(s->test.count, 2);
    assert_int_equal(s->train.classes, 3);
    assert_int_equal(s->test.classes, 3);
    assert_int_equal(dataset_sample_size(&s->train), 6);
    assert_int_equal(s->train.shape[0], 1);
    assert_int_equal(s->train.shape[1], 2);
    assert_int_equal(s->train.shape[2], 3);
    assert_memory_equal(s->train.bytes, &TRAIN_IMAGES[16], 24);
    assert_memory_equal(s->test.bytes, &TEST_IMAGES[16], 12);
    for (size_t i = 0; i < 4; i++) assert_int_equal(s->train.labels[i], TRAIN_LABELS[8 + i]);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < 24; i++) sum += s->train.bytes[i] / 255.0;
    for (size_t i = 0; i < 24; i++) squares += pow(s->train.bytes[i] / 255.0 - sum / 24, 2);
    expect_near((double)s->train.mean[0], sum / 24, 1e-6);
    expect_near((double)s->train.std[0], sqrt(squares / 24), 1e-6);
    assert_true(s->test.mean[0] == s->train.mean[0] && s->test.std[0] == s->train.std[0]);
    float x[6];
    dataset_sample(&s->test, 1, NULL, 0, x);
    expect_near((double)x[2], (0x18 / 255.0 - sum / 24) / sqrt(squares / 24), 1e-5);
    dataset_close(s);
}

static void test_idx_plain(void **state) {
    const Folder *folder = *state;
    write_good_idx(folder->path);
    expect_tiny_idx(folder->path);
}

static void test_idx_gzipped(void **state) {
    const Folder *folder = *state;
    const char *f = folder->path;
    uint8_t z[256];
    folder_clear(f);
    write_file(f, "train-images-idx3-ubyte.gz", z, gzip(BYTES(TRAIN_IMAGES), z, sizeof z));
    write_file(f, "train-labels-idx1-ubyte.gz", z, gzip(BYTES(TRAIN_LABELS), z, sizeof z));
    write_file(f, "t10k-images-idx3-ubyte.gz", z, gzip(BYTES(TEST_IMAGES), z, sizeof z));
    write_file(f, "t10k-labels-idx1-ubyte", BYTES(TEST_LABELS));
    expect_tiny_idx(f);
    const int input = dup(0); // a program whose standard input is closed: files get descriptor 0
    close(0);
    expect_tiny_idx(f);
    assert_true(dup2(input, 0) == 0 && close(input) == 0);
}

// Names with a dot, and files with channels.
static void test_idx_other_forms(void **state) {
    const Folder *folder = *state;
    char old[200], new[200];
    snprintf(old, sizeof old, "%s/train-images-idx3-ubyte", folder->path);
    snprintf(new, sizeof new, "%s/train-images.idx3-ubyte", folder->path);
    write_good_idx(folder->path);
    assert_int_equal(rename(old, new), 0);
    expect_tiny_idx(folder->path);
    write_good_idx(folder->path);
    write_file(folder->path, "train-images-idx3-ubyte",
               BYTES("\0\0\x08\4\0\0\0\4\0\0\0\4\0\0\0\1\0\0\0\1"
                     "\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6\7"));
    write_file(folder->path, "t10k-images-idx3-ubyte",
               BYTES("\0\0\x08\4\0\0\0\2\0\0\0\4\0\0\0\1\0\0\0\1\0\1\2\3\4\5\6\7"));
    DataSource *s = open_good(folder->path);
    assert_int_equal(s->train.shape[0], 4); // the maximum number of channels
    for (size_t c = 0; c < 4; c++)          // 0 4 0 4, 1 5 1 5, ...
        expect_near((double)s->train.mean[c], ((double)c + 2) / 255.0, 1e-6);
    dataset_close(s);
    write_file(folder->path, FILES[0], BYTES("\0\0\x08\2\0\0\0\4\0\0\0\1\7\7\7\7"));
    write_file(folder->path, "t10k-images-idx3-ubyte", BYTES("\0\0\x08\2\0\0\0\2\0\0\0\1\6\7"));
    s = open_good(folder->path);
    assert_int_equal(dataset_sample_size(&s->train), 1);
    for (size_t d = 0; d < 3; d++) assert_int_equal(s->train.shape[d], 1);
    assert_true(s->train.std[0] == 1); // constant pixels: no division by 0
    dataset_close(s);
    // Label 255 is a class if 254 occurs, before or after it.
    write_good_idx(folder->path);
    static const char *const many[] = {"\0\0\x08\1\0\0\0\4\xff\0\1\xfe",
                                       "\0\0\x08\1\0\0\0\4\xfe\0\1\xff"};
    for (int i = 0; i < 2; i++) {
        write_file(folder->path, FILES[1], (const uint8_t *)many[i], 12);
        s = open_good(folder->path);
        assert_int_equal(s->train.classes, 256);
        assert_int_equal(s->train.labels[0], 255 - i);
        dataset_close(s);
    }
    // Each one of the four files identifies the folder's format.
    for (int i = 0; i < 4; i++) {
        folder_clear(folder->path);
        write_file(folder->path, FILES[i], BYTES(""));
        expect_error(folder->path, i == 0 ? "IDX file is truncated" : "no train-images-idx3-ubyte");
    }
}

typedef struct Broken {
    const char *file;
    const uint8_t *bytes;
    size_t count;
    const char *fragment;
} Broken;

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"
static const Broken BROKEN_IDX[] = {
    {IMAGES, BYTES(""), "train-images-idx3-ubyte: IDX file is truncated: 0 bytes, no header"},
    {IMAGES, BYTES("\0\0\x08"), "IDX file is truncated: 3 bytes, no header"},
    {IMAGES, BYTES("\x89PNG\r\n"), "not an IDX file: it starts with 89 50 4e 47"},
    {IMAGES, BYTES("\1\0\x08\3\0\0\0\4"), "not an IDX file: it starts with 01 00 08 03"},
    {IMAGES, BYTES("\0\1\x08\3\0\0\0\4"), "not an IDX file: it starts with 00 01 08 03"},
    {IMAGES, BYTES("\0\0\x0d\3\0\0\0\4"), "values of IDX type 0x0d"},
    {IMAGES, BYTES(TRAIN_LABELS), "1 dimensions in an IDX file of images, which has 2 to 4"},
    {IMAGES, BYTES("\0\0\x08\5\0\0\0\1"), "5 dimensions in an IDX file of images"},
    {IMAGES, BYTES("\0\0\x08\xff\0\0\0\1"), "255 dimensions in an IDX file of images"},
    {IMAGES, BYTES("\0\0\x08\3\0\0\0\4\0\0"), "truncated inside its header"},
    {IMAGES, BYTES("\0\0\x08\3\0\0\0\0\0\0\0\2\0\0\0\3"), "dimension 0 of the IDX file is 0"},
    {IMAGES, BYTES("\0\0\x08\3\0\0\0\4\0\0\0\2\0\0\0\0"), "dimension 2 of the IDX file is 0"},
    {IMAGES, BYTES("\0\0\x08\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
     "the IDX header asks for more than 8 GiB"},
    {IMAGES, BYTES("\0\0\x08\3\x80\0\0\0\x80\0\0\0\0\0\0\4"), "asks for more than 8 GiB"},
    {IMAGES, BYTES("\0\0\x08\3\x80\0\0\1\0\0\0\4\0\0\0\1"), "asks for more than 8 GiB"},
    {IMAGES, BYTES("\0\0\x08\3\x80\0\0\0\0\0\0\4\0\0\0\1"), // 8 GiB
     "IDX file is truncated: header says 2147483648 images, 0 follow"},
    {IMAGES, BYTES("\0\0\x08\3\0\0\xea\x60\0\0\0\1\0\0\0\2\1\2\3\4\5\6\7"),
     "IDX file is truncated: header says 60000 images, 3 follow"},
    {IMAGES, BYTES("\0\0\x08\3\x7f\0\0\0\0\0\0\1\0\0\0\1\1"),
     "IDX file is truncated: header says 2130706432 images, 1 follow"},
    {IMAGES, BYTES(TRAIN_IMAGES "\0"), "more bytes follow the 4 images"},
    {IMAGES, BYTES("\0\0\x08\4\0\0\0\1\0\0\0\5\0\0\0\1\0\0\0\1\1\2\3\4\5"),
     "images of 5 channels; at most 4"},
    {IMAGES, BYTES("\0\0\x08\3\0\0\0\4\0\0\0\3\0\0\0\2aaaabbbbccccddddeeeeffff"),
     "training images are 1x3x2 but test images 1x2x3"},
    {LABELS, BYTES(TRAIN_IMAGES), "3 dimensions in an IDX file of labels, which has 1"},
    {LABELS, BYTES("\0\0\x08\1\0\0\0\4\0\2\1"), "header says 4 labels, 3 follow"},
    {LABELS, BYTES(TRAIN_LABELS "\1\1"), "more bytes follow the 4 labels"},
    {LABELS, BYTES("\0\0\x08\1\0\0\0\4\0\xff\xff\1"), "label 255 of image 1, but no image has"},
    {LABELS, BYTES("\0\0\x08\1\0\0\0\4\xff\1\xfd\1"), "label 255 of image 0, but no image has"},
    {LABELS, BYTES("\0\0\x08\1\0\0\0\4\0\1\1\xff"), "label 255 of image 3, but no image has"},
    {LABELS, BYTES("\0\0\x08\1\0\0\0\3\0\2\1"), "3 labels for the 4 images of"},
    {"t10k-labels-idx1-ubyte", BYTES("\0\0\x08\1\0\0\0\2\2\3"),
     "t10k-labels-idx1-ubyte: label 3 of image 1 is outside the training set's 0..2"},
    {"t10k-images-idx3-ubyte", BYTES(TRAIN_IMAGES), "2 labels for the 4 images of"},
    {IMAGES, BYTES("\0\0\x08\3\0\0\0\1\0\0\0\2\0\0\0\3abcdef"), "4 labels for the 1 image of"},
    {LABELS, BYTES("\0\0\x08\1\0\0\0\1\0"), "1 label for the 4 images of"},
};

static void test_idx_broken(void **state) {
    const Folder *folder = *state;
    for (size_t i = 0; i < sizeof BROKEN_IDX / sizeof *BROKEN_IDX; i++) {
        const Broken *b = &BROKEN_IDX[i];
        write_good_idx(folder->path);
        write_file(folder->path, b->file, b->bytes, b->count);
        expect_error(folder->path, b->fragment);
    }
    for (size_t i = 0; i < 4; i++) {
        char path[200];
        write_good_idx(folder->path);
        snprintf(path, sizeof path, "%s/%s", folder->path, FILES[i]);
        remove(path);
        char fragment[64];
        snprintf(fragment, sizeof fragment, "no %s or", FILES[i]);
        expect_error(folder->path, fragment);
        assert_int_equal(mkdir(path, 0700), 0);
        expect_error(folder->path, "is a folder, not a regular file");
    }
}

// A gzip file that is cut at any position, or has any byte changed, is an error.
static void test_gzip_broken(void **state) {
    const Folder *folder = *state;
    const char *name = "train-images-idx3-ubyte.gz";
    uint8_t z[2048];
    char plain[200];
    size_t count = gzip(BYTES(TRAIN_IMAGES), z, sizeof z);
    write_good_idx(folder->path);
    snprintf(plain, sizeof plain, "%s/train-images-idx3-ubyte", folder->path);
    remove(plain);
    for (size_t length = 0; length < count; length++) {
        write_file(folder->path, name, z, length);
        expect_error(folder->path, length < 4 ? name : "truncated");
    }
    for (size_t i = 10; i < count; i++) { // the first ten bytes hold time and system
        z[i] ^= 0x40;
        write_file(folder->path, name, z, count);
        expect_error(folder->path, name);
        z[i] ^= 0x40;
    }
    memcpy(z + count, "garbage!", 8);
    write_file(folder->path, name, z, count + 8);
    expect_error(folder->path, "train-images-idx3-ubyte.gz: bytes that are not gzip's follow");
    // The last four bytes of a stream are its size. Followed by others, each of them counts: a
    // number that is larger than the unpacked file, 40 bytes.
    static const uint8_t last[][4] = {{41}, {40, 1}, {40, 0, 1}, {40, 0, 0, 1}, {0, 0, 0, 0x80}};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        memcpy(z + count, last[i], 4);
        write_file(folder->path, name, z, count + 4);
        expect_error(folder->path, "train-images-idx3-ubyte.gz: bytes that are not gzip's follow");
    }
    count = gzip(BYTES(TRAIN_IMAGES) - 7, z, sizeof z);
    write_file(folder->path, name, z, count);
    expect_error(folder->path, "header says 4 images, 2 follow");
    static uint8_t large[16 + (1 << 20)]; // exactly one read
    memcpy(large, "\0\0\x08\3\0\0\0\4\0\0\2\0\0\0\2\0", 16);
    count = gzip(large, sizeof large, z, sizeof z);
    write_file(folder->path, name, z, count);
    memcpy(z + count, z, 12); // followed by the beginning of a second stream
    write_file(folder->path, "t10k-images-idx3-ubyte", z, count + 12);
    write_file(folder->path, "t10k-labels-idx1-ubyte", BYTES(TRAIN_LABELS));
    expect_error(folder->path, "t10k-images-idx3-ubyte: the gzip file is truncated");
}

// ---- gzip bombs

enum { BOMB = 192 << 20 }; // bytes of zeros, which gzip compresses a thousandfold

static void write_bomb(const char *folder, const char *name, const uint8_t *header, size_t count) {
    char path[200];
    static const uint8_t zeros[1 << 20];
    write_good_idx(folder);
    snprintf(path, sizeof path, "%s/%.*s", folder, (int)strlen(name) - 3, name);
    remove(path); // the valid file without ".gz"
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, header, (unsigned)count), count);
    for (size_t i = 0; i < BOMB; i += sizeof zeros)
        assert_int_equal(gzwrite(file, zeros, sizeof zeros), sizeof zeros);
    assert_int_equal(gzclose(file), Z_OK);
}

static int open_bomb(const char *folder) {
    Error err = {0};
    DataSource *source = dataset_open(folder, 1, &err);
    return !source && strstr(err.message, "no pictures become so small") ? 0 : -1;
}

// Refused by the header of the unpacked file, before the rest is unpacked.
static void test_gzip_bomb(void **state) {
    const Folder *folder = *state;
    write_bomb(folder->path, "train-images-idx3-ubyte.gz",
               BYTES("\0\0\x08\3\0\0\0\4\0\0\x18\0\0\0\x20\0")); // 4 of 6144 x 8192
    assert_peak_below(64, open_bomb, folder->path);
    write_bomb(folder->path, "t10k-labels-idx1-ubyte.gz", BYTES("\0\0\x08\1\x0c\0\0\0"));
    assert_peak_below(64, open_bomb, folder->path);
}

// Writes a header of one image of `width` pixels and `noise` bytes, without compressing them.
// Returns the size of the file.
static long write_uncompressed(const char *folder, uint32_t width, size_t noise) {
    const uint8_t sizes[] = {(uint8_t)(width >> 24), (uint8_t)(width >> 16), (uint8_t)(width >> 8),
                             (uint8_t)width};
    struct stat st;
    char path[200];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    gzFile file = gzopen(path, "wb0");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, "\0\0\x08\3\0\0\0\1\0\0\0\1", 12), 12);
    assert_int_equal(gzwrite(file, sizes, 4), 4);
    for (size_t i = 0; i < noise; i++) assert_int_equal(gzputc(file, 'n'), 'n');
    assert_int_equal(gzclose(file), Z_OK);
    assert_int_equal(stat(path, &st), 0);
    return (long)st.st_size;
}

// The most that a gzip file may claim: 64 MiB in any case, beyond it a hundred times its size.
static void test_gzip_ratio(void **state) {
    const Folder *folder = *state;
    char plain[200];
    write_good_idx(folder->path);
    snprintf(plain, sizeof plain, "%s/train-images-idx3-ubyte", folder->path);
    remove(plain);
    write_uncompressed(folder->path, 64 << 20, 0);
    expect_error(folder->path, "4 labels for the 1 image of");
    write_uncompressed(folder->path, (64 << 20) + 1, 0);
    expect_error(folder->path, "IDX header says 67108865 bytes of values: no pictures become so");
    const long bytes = write_uncompressed(folder->path, 0, 700000);
    write_uncompressed(folder->path, (uint32_t)(100 * bytes + 99), 700000);
    expect_error(folder->path, "4 labels for the 1 image of");
    write_uncompressed(folder->path, (uint32_t)(100 * bytes + 100), 700000);
    expect_error(folder->path, "no pictures become so small");
}

// Disagreeing sizes are found in the headers, before any pixel or label is read.
static void test_idx_headers_first(void **state) {
    const Folder *folder = *state;
    write_good_idx(folder->path);
    write_file(folder->path, "t10k-images-idx3-ubyte.gz", BYTES(""));
    char plain[200], packed[200];
    snprintf(plain, sizeof plain, "%s/t10k-images-idx3-ubyte", folder->path);
    snprintf(packed, sizeof packed, "%s/t10k-images-idx3-ubyte.gz", folder->path);
    assert_int_equal(remove(plain), 0);
    uint8_t z[256];
    size_t count = gzip(BYTES("\0\0\x08\3\0\0\0\3\0\0\0\2\0\0\0\3"), z, sizeof z);
    write_file(folder->path, "t10k-images-idx3-ubyte.gz", z, count);
    expect_error(folder->path, "2 labels for the 3 images");
    count = gzip(BYTES("\0\0\x08\3\0\0\0\2\0\0\0\3\0\0\0\3"), z, sizeof z);
    write_file(folder->path, "t10k-images-idx3-ubyte.gz", z, count);
    expect_error(folder->path, "training images are 1x2x3 but test images 1x3x3");
}

enum { RECORD = 3073 };

static void write_cifar(const char *folder) {
    uint8_t records[2 * RECORD];
    folder_clear(folder);
    for (uint8_t batch = 0; batch < 6; batch++) {
        for (size_t i = 0; i < sizeof records; i++)
            records[i] = (uint8_t)(i % RECORD == 0 ? batch : (i % RECORD - 1) / 1024 * 10 + batch);
        write_file(folder, FILES[10 + batch], records, batch == 5 ? RECORD : sizeof records);
    }
}

static void expect_tiny_cifar(const char *folder) {
    DataSource *s = open_good(folder);
    assert_string_equal(s->name, "cifar10");
    assert_int_equal(s->train.count, 10);
    assert_int_equal(s->test.count, 1);
    assert_int_equal(s->train.classes, 10);
    for (size_t i = 0; i < 10; i++) assert_int_equal(s->train.labels[i], i / 2);
    assert_int_equal(s->test.labels[0], 5);
    for (size_t c = 0; c < 3; c++) {
        assert_int_equal(s->train.bytes[7 * 3072 + c * 1024 + 1023], 10 * c + 3);
        expect_near((double)s->train.mean[c], (10.0 * (double)c + 2) / 255, 1e-6);
        expect_near((double)s->train.std[c], sqrt(2) / 255, 1e-6);
    }
    dataset_close(s);
}

static void test_cifar(void **state) {
    const Folder *folder = *state;
    char below[200];
    snprintf(below, sizeof below, "%s/cifar-10-batches-bin", folder->path);
    write_cifar(folder->path);
    expect_tiny_cifar(folder->path);
    folder_clear(folder->path);
    assert_int_equal(mkdir(below, 0700), 0);
    write_cifar(below);
    expect_tiny_cifar(folder->path);
}

static void test_cifar_broken(void **state) {
    const Folder *folder = *state;
    uint8_t record[RECORD + 1] = {10};
    char path[200];
    write_cifar(folder->path);
    write_file(folder->path, "data_batch_3.bin", record, RECORD);
    expect_error(folder->path, "data_batch_3.bin: label 10 of record 0 is outside 0..9");
    uint8_t two[2 * RECORD] = {9}; // the largest label, and then one more
    two[RECORD] = 10;
    write_file(folder->path, "data_batch_3.bin", two, sizeof two);
    expect_error(folder->path, "data_batch_3.bin: label 10 of record 1 is outside 0..9");
    write_file(folder->path, "data_batch_3.bin", record, RECORD + 1);
    expect_error(folder->path, "data_batch_3.bin: CIFAR-10 batch is truncated: 3074 bytes");
    write_file(folder->path, "data_batch_3.bin", record, 0);
    expect_error(folder->path, "CIFAR-10 batch is truncated: 0 bytes");
    for (size_t i = 10; i < 16; i++) {
        write_cifar(folder->path);
        snprintf(path, sizeof path, "%s/%s", folder->path, FILES[i]);
        remove(path);
        snprintf(path, sizeof path, "%s: No such file", FILES[i]);
        expect_error(folder->path, path);
    }
}

static void test_not_a_data_set(void **state) {
    const Folder *folder = *state;
    char path[200];
    folder_clear(folder->path);
    expect_error(folder->path,
                 "neither IDX files (train-images-idx3-ubyte[.gz], ...) nor CIFAR-10");
    snprintf(path, sizeof path, "%s/nothing", folder->path);
    expect_error(path, "No such file or directory");
    write_good_idx(folder->path);
    snprintf(path, sizeof path, "%s/%s", folder->path, FILES[0]);
    expect_error(path, "not a folder");
    char long_name[3000];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    expect_error(long_name, "path of the data set");
    long_name[1001] = '\0'; // one more than is accepted
    expect_error(long_name, "path of the data set");
    long_name[1000] = '\0';
    expect_error(long_name, "File name too long");
    expect_error("", "No such file or directory");
}

static void test_digits(void **state) {
    (void)state;
    unsetenv("DDPC_DATA");
    DataSource *s = open_good("digits");
    assert_string_equal(s->name, "digits");
    assert_int_equal(s->train.count, 1500);
    assert_int_equal(s->test.count, 297);
    assert_int_equal(s->train.classes, 10);
    // Known totals of the set: each digit's count and the sum of all pixels.
    static const size_t total[10] = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
    size_t train[10] = {0}, test[10] = {0}, pixels = 0;
    for (size_t i = 0; i < 1500; i++) train[s->train.labels[i]]++;
    for (size_t i = 0; i < 297; i++) test[s->test.labels[i]]++;
    for (size_t k = 0; k < 10; k++) {
        assert_int_equal(train[k] + test[k], total[k]);
        assert_in_range(test[k], 15, 50); // the order is random: about 30 of each digit
    }
    for (size_t i = 0; i < 1500 * 64; i++) pixels += s->train.bytes[i];
    for (size_t i = 0; i < 297 * 64; i++) pixels += s->test.bytes[i];
    assert_int_equal(pixels, 15 * 561718);

    double sum = 0, squares = 0;
    for (size_t i = 0; i < 1500; i++) {
        float x[64];
        dataset_sample(&s->train, i, NULL, 0, x);
        for (size_t p = 0; p < 64; p++) {
            sum += (double)x[p];
            squares += (double)x[p] * (double)x[p];
        }
    }
    expect_near(sum / (1500 * 64), 0, 1e-5);
    expect_near(squares / (1500 * 64), 1, 1e-5);
    dataset_close(s);
}

static void test_digits_from_environment(void **state) {
    const Folder *folder = *state;
    char below[200];
    folder_clear(folder->path);
    snprintf(below, sizeof below, "%s/digits", folder->path);
    setenv("DDPC_DATA", folder->path, 1);
    DataSource *shipped = open_good("digits"); // no such folder: the shipped set
    assert_int_equal(shipped->train.count, 1500);
    dataset_close(shipped);
    assert_int_equal(mkdir(below, 0700), 0);
    write_good_idx(below);
    DataSource *own = open_good("digits");
    assert_string_equal(own->name, "digits");
    assert_int_equal(own->train.count, 4);
    dataset_close(own);
    unsetenv("DDPC_DATA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx_plain),
        cmocka_unit_test(test_idx_gzipped),
        cmocka_unit_test(test_idx_other_forms),
        cmocka_unit_test(test_idx_broken),
        cmocka_unit_test(test_gzip_broken),
        cmocka_unit_test(test_gzip_bomb),
        cmocka_unit_test(test_gzip_ratio),
        cmocka_unit_test(test_idx_headers_first),
        cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_cifar_broken),
        cmocka_unit_test(test_not_a_data_set),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_digits_from_environment),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
