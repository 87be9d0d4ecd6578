/* test_pixel_folder.c: users' pictures with a label for every pixel, valid and invalid. Each
 * invalid folder must give one line that names the file and the mistake.
 */
#include "tests/rigs/check.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/data/dataset.h"
#include "tests/rigs/temp_folder.h"

// A C string literal that may contain NULs, and its length.
#define BYTES(text) (text), sizeof(text) - 1

static void write_file(void **state, const char *name, const char *bytes, size_t count) {
    char *path = temp_folder_path(state, name);
    unlink(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
    free(path);
}

static void make_folder(void **state, const char *name) {
    char *path = temp_folder_path(state, name);
    assert_true(mkdir(path, 0700) == 0 || access(path, F_OK) == 0);
    free(path);
}

// Two training pictures of 3x2 pixels and one for testing. They are sorted by name: a, b, a-z, in
// any order of the folder and any locale.
static void write_good(void **state) {
    make_folder(state, "train");
    make_folder(state, "test");
    write_file(state, "train/b.ppm", BYTES("P6\n3 2\n255\nabcdefghijklmnopqr"));
    write_file(state, "train/b.pgm", BYTES("P5\n3 2\n255\n\2\2\1\1\0\0"));
    write_file(state, "train/a.ppm",
               BYTES("P6 # a comment\n# and another\n3\t2 255\nABCDEFGHIJKLMNOPQR"));
    write_file(state, "train/a.pgm", BYTES("P5\n3 2\n255\n\0\1\xff\xff\0\1"));
    write_file(state, "train/README", BYTES("is left alone"));
    write_file(state, "train/.a.ppm", BYTES("this one, too"));
    write_file(state, "test/0.ppm", BYTES("P6\n3 2\n255\n123456789123456789"));
    write_file(state, "test/0.pgm", BYTES("P5\n3 2\n255\n\2\xff\0\0\0\0"));
}

static void test_good(void **state) {
    Error err = {0};
    write_good(state);
    DataSource *source =
        dataset_open_with(&(DataOptions){.name = *state, .ignore_label = 255}, &err);
    if (!source) fail_msg("%s", err.message);
    const Dataset *train = &source->train, *test = &source->test;
    assert_string_equal(source->name, "pixels");
    assert_int_equal(train->count, 2);
    assert_int_equal(test->count, 1);
    assert_true(train->dense && test->dense);
    assert_int_equal(train->classes, 3);
    assert_int_equal(test->classes, 3);
    const size_t shape[] = {3, 2, 3};
    assert_memory_equal(train->shape, shape, sizeof shape);
    assert_memory_equal(train->bytes, "ADGJMPBEHKNQCFILORadgjmpbehknqcfilor", 36);
    const int64_t labels[] = {0, 1, LABEL_IGNORE, LABEL_IGNORE, 0, 1, 2, 2, 1, 1, 0, 0};
    assert_memory_equal(train->labels, labels, sizeof labels);
    assert_int_equal(test->labels[0], 2);
    assert_int_equal(test->labels[1], LABEL_IGNORE);
    check_close((double)train->mean[0], ('A' + 'P' + 'a' + 'p') / 4.0 / 255, 1e-6, "mean of red");
    assert_true(test->mean[2] == train->mean[2]);
    dataset_close(source);
}

static void refused(void **state, int ignore_label, const char *says) {
    Error err = {0};
    DataSource *source =
        dataset_open_with(&(DataOptions){.name = *state, .ignore_label = ignore_label}, &err);
    if (source) fail_msg("opened, but \"%s\" was to come", says);
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, says);
    assert_null(strchr(err.message, '\n'));
}

static void test_ignored_label(void **state) {
    write_good(state);
    refused(state, -1,
            "train: labels up to 2, and then 255: is that no class? (--ignore-label 255)");
    refused(state, 7, "train: labels up to 2, and then 255: is that no class?");
    write_file(state, "train/a.pgm", BYTES("P5\n3 2\n255\n\0\1\1\1\0\1"));
    refused(state, -1, "test: label 255 is outside the training set's 0..2");
    refused(state, 2, "test: label 255 is outside the training set's 0..1");
    write_file(state, "test/0.pgm", BYTES("P5\n3 2\n255\n\2\0\0\0\0\0"));
    DataSource *source = dataset_open(*state, 0, NULL);
    assert_non_null(source); // no pixel is ignored
    assert_int_equal(source->train.classes, 3);
    dataset_close(source);
    // Labels with a gap count as classes up to the largest, and so does 255 if 254 occurs.
    static const struct {
        const char *labels;
        size_t classes;
    } gaps[] = {{"P5\n3 2\n255\n\0\0\0\0\0\7", 8}, {"P5\n3 2\n255\n\0\0\0\0\376\377", 256}};
    for (int i = 0; i < 2; i++) {
        write_file(state, "train/a.pgm", gaps[i].labels, 17);
        source = dataset_open(*state, 0, NULL);
        assert_non_null(source);
        assert_int_equal(source->train.classes, gaps[i].classes);
        dataset_close(source);
    }
    write_file(state, "train/a.pgm", BYTES("P5\n3 2\n255\n\0\0\0\0\375\377"));
    refused(state, -1, "train: labels up to 253, and then 255: is that no class?");
    write_file(state, "train/a.pgm", BYTES("P5\n3 2\n255\n\5\5\5\5\5\5"));
    write_file(state, "train/b.pgm", BYTES("P5\n3 2\n255\n\5\5\5\5\5\5"));
    refused(state, 5, "every pixel has the label that is to be ignored");
}

#define PICTURE "train/b.ppm"
#define LABELS  "train/b.pgm"
static const struct {
    const char *name, *bytes;
    size_t count;
    const char *says;
} BROKEN[] = {
    {PICTURE, BYTES(""), "train/b.ppm: no binary PPM or PGM file"},
    {PICTURE, BYTES("P"), "no binary PPM or PGM file"},
    {PICTURE, BYTES("P3\n3 2\n255\n1 2 3"), "no binary PPM or PGM file"},
    {PICTURE, BYTES("\x89PNG\r\n"), "no binary PPM or PGM file"},
    {PICTURE, BYTES("P6"), "the header has no width and height"},
    {PICTURE, BYTES("P6\n3"), "the header has no width and height"},
    {PICTURE, BYTES("P6\n0 2\n255\n"), "the header has no width and height from 1 to 65536"},
    {PICTURE, BYTES("P6\n-3 2\n255\n"), "the header has no width and height"},
    {PICTURE, BYTES("P6\n3.5 2\n255\n"), "the header has no width and height"},
    {PICTURE, BYTES("P6\n65537 2\n255\n"), "the header has no width and height"},
    {PICTURE, BYTES("P6\n99999999999999999999 2\n255\n"), "the header has no width and height"},
    {PICTURE, BYTES("P6\n3 2\n65535\n"), "only values from 0 to 255 are read"},
    {PICTURE, BYTES("P6\n3 2\n15\n"), "only values from 0 to 255 are read"},
    {PICTURE, BYTES("P6\n3 2\n255"), "only values from 0 to 255 are read"}, // truncated
    {PICTURE, BYTES("P6\n3 2\n255\nabcdefghijklmnopq"),
     "the header says 3x2 pixels, 18 bytes; 17 bytes follow"},
    {PICTURE, BYTES("P6\n3 2\n255\nabcdefghijklmnopqrs"), "18 bytes; 19 bytes follow"},
    {PICTURE, BYTES("P6\n65536 65536\n255\n"), "12884901888 bytes; 0 bytes follow"},
    {PICTURE, BYTES("P6\n2 3\n255\nabcdefghijklmnopqr"),
     "train/b.ppm: is 2x3 pixels, the first picture 3x2: all must be of one size"},
    {PICTURE, BYTES("P5\n3 2\n255\nabcdef"), "train/b.ppm: is a PGM file inside"},
    {LABELS, BYTES("P6\n3 2\n255\nabcdefghijklmnopqr"), "train/b.pgm: is a PPM file inside"},
    {LABELS, BYTES("P5\n2 2\n255\nabcd"), "train/b.pgm: is 2x2 pixels, the first picture 3x2"},
    {"test/0.ppm", BYTES("P6\n1 1\n255\nabc"), "test/0.ppm: is 1x1 pixels, the first picture 3x2"},
    {"test/0.pgm", BYTES("P5\n3 2\n255\n\3\0\0\0\0\0"), "test: label 3 is outside the training"},
    {"train/c.ppm", BYTES("P6\n3 2\n255\nabcdefghijklmnopqr"),
     "train/c.ppm has no c.pgm with its labels beside it"},
    {"train/aa.pgm", BYTES("P5\n3 2\n255\n\0\0\0\0\0\0"), "train/aa.pgm has no aa.ppm beside it"},
    {"train/0.ppm", BYTES("P6\n3 2\n255\nabcdefghijklmnopqr"), "train/0.ppm has no 0.pgm"},
    {"test/z.ppm", BYTES("P6\n3 2\n255\nabcdefghijklmnopqr"), "test/z.ppm has no z.pgm"},
};

static void test_broken(void **state) {
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++) {
        write_good(state);
        write_file(state, BROKEN[i].name, BROKEN[i].bytes, BROKEN[i].count);
        refused(state, 255, BROKEN[i].says);
        char *path = temp_folder_path(state, BROKEN[i].name);
        unlink(path);
        free(path);
    }
}

// Names that begin with another name, and sort before it in many locales.
static void test_names(void **state) {
    static const char *const names[] = {"a", "a-b", "ab", "b"};
    Error err = {0};
    write_good(state);
    for (int i = 3; i >= 0; i--) {
        char name[32], picture[] = "P6\n3 2\n255\n?bcdefghijklmnopqr";
        picture[11] = (char)('0' + i);
        snprintf(name, sizeof name, "train/%s.ppm", names[i]);
        write_file(state, name, BYTES(picture));
        snprintf(name, sizeof name, "train/%s.pgm", names[i]);
        write_file(state, name, BYTES("P5\n3 2\n255\n\0\1\2\0\1\2"));
    }
    DataSource *source =
        dataset_open_with(&(DataOptions){.name = *state, .ignore_label = 255}, &err);
    if (!source) fail_msg("%s", err.message);
    assert_int_equal(source->train.count, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(source->train.bytes[18 * i], '0' + i);
    dataset_close(source);
    // The labels' name must be the picture's, not begin with it.
    write_file(state, "train/c.ppm", BYTES("P6\n3 2\n255\nabcdefghijklmnopqr"));
    write_file(state, "train/cc.pgm", BYTES("P5\n3 2\n255\n\0\1\2\0\1\2"));
    refused(state, 255, "train/c.ppm has no c.pgm with its labels beside it");
}

// A header of 4096 bytes is read, one of 4097 is not.
static void test_long_header(void **state) {
    static char file[4097 + 18];
    for (size_t more = 0; more < 2; more++) {
        const size_t header = 4096 + more;
        memset(file, 'c', header);
        memcpy(file, "P6\n#", 4);
        memcpy(file + header - 9, "\n3 2\n255\n", 9);
        memset(file + header, 'x', 18);
        write_good(state);
        write_file(state, "test/0.ppm", file, header + 18);
        if (more > 0) {
            refused(state, 255, "test/0.ppm: only values from 0 to 255 are read");
            continue;
        }
        Error err = {0};
        DataSource *source =
            dataset_open_with(&(DataOptions){.name = *state, .ignore_label = 255}, &err);
        if (!source) fail_msg("%s", err.message);
        assert_int_equal(source->test.bytes[17], 'x');
        dataset_close(source);
    }
}

static void test_missing(void **state) {
    refused(state, -1, "nor pictures with labels (train/NAME.ppm and train/NAME.pgm, ...)");
    make_folder(state, "test");
    refused(state, -1, "train: No such file or directory");
    make_folder(state, "train");
    refused(state, -1, "train: no pictures in it (NAME.ppm and NAME.pgm)");
    write_file(state, "train/.ppm", BYTES("no name"));
    refused(state, -1, "train: no pictures in it (NAME.ppm and NAME.pgm)");
    write_good(state);
    char *path = temp_folder_path(state, "train/b.pgm");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); // without a writer
    refused(state, 255, "train/b.pgm: is a FIFO, not a regular file");
    free(path);
}

// More pixels than memory: sparse files as large as their headers claim.
static void test_too_many_pixels(void **state) {
    enum { SIDE = 16384, FILES = 4 };
    static const char *const NAMES[FILES] = {"train/0.ppm", "train/0.pgm", "train/1.ppm",
                                             "train/1.pgm"};
    write_good(state);
    for (int i = 0; i < FILES; i++) {
        char header[32];
        int length =
            snprintf(header, sizeof header, "P%d\n%d %d\n255\n", i % 2 ? 5 : 6, SIDE, SIDE);
        write_file(state, NAMES[i], header, (size_t)length);
        char *path = temp_folder_path(state, NAMES[i]);
        assert_int_equal(truncate(path, length + (i % 2 ? 1L : 3L) * SIDE * SIDE), 0);
        free(path);
    }
    refused(state, 255, "train/a.ppm: is 3x2 pixels");
    const char *const good[] = {"train/a.ppm", "train/a.pgm", "train/b.ppm", "train/b.pgm"};
    for (int i = 0; i < 4; i++) {
        char *path = temp_folder_path(state, good[i]);
        unlink(path);
        free(path);
    }
    refused(state, 255, "train: 2 pictures of 16384x16384 pixels take over 3 GiB");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_good),
        IN_FOLDER(test_ignored_label),
        IN_FOLDER(test_broken),
        IN_FOLDER(test_names),
        IN_FOLDER(test_long_header),
        IN_FOLDER(test_missing),
        IN_FOLDER(test_too_many_pixels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
