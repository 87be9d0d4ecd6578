/* test_shrinking.c: a file that becomes shorter after it was opened is refused with a line that
 * names the file. Every reader takes the size from the open descriptor and checks headers against
 * it, so only this shows whether the reads themselves are checked.
 */
#include "tests/rigs/check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/data/dataset.h"
#include "tests/rigs/temp_folder.h"

static struct {
    const char *name; // the end of the path that is cut; NULL: none
    int opens;        // cut at this opening, counted down
    long bytes;       // to this length
} cut;

FILE *__real_file_open_stream(const char *path, size_t *bytes, Error *err);
FILE *__wrap_file_open_stream(const char *path, size_t *bytes, Error *err);

FILE *__wrap_file_open_stream(const char *path, size_t *bytes, Error *err) {
    FILE *file = __real_file_open_stream(path, bytes, err);
    const size_t length = strlen(path), end = cut.name ? strlen(cut.name) : SIZE_MAX;
    if (file && end <= length && strcmp(path + length - end, cut.name) == 0 && --cut.opens == 0)
        assert_int_equal(truncate(path, cut.bytes), 0);
    return file;
}

static void write_file(void **state, const char *name, const void *bytes, size_t count) {
    char *path = temp_folder_path(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
    free(path);
}

static void refused(void **state, const char *says) {
    Error err = {0};
    DataSource *source =
        dataset_open_with(&(DataOptions){.name = *state, .context = 3, .ignore_label = -1}, &err);
    if (source) fail_msg("opened, but \"%s\" was to come", says);
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, says);
    check_message(&err, cut.name);
    assert_int_equal(cut.opens, 0);
}

static void opened(void **state) {
    Error err = {0};
    DataSource *source =
        dataset_open_with(&(DataOptions){.name = *state, .context = 3, .ignore_label = -1}, &err);
    CHECK_OK(source, err);
    dataset_close(source);
}

// A batch of two records is cut before the second one's label, behind it, and before its last
// pixel.
static void records(void **state) {
    enum { RECORD = 3073 };
    static const uint8_t batch[2 * RECORD];
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    static const long lengths[] = {RECORD, RECORD + 1, 2 * RECORD - 1};
    for (int i = 0; i < 6; i++) write_file(state, names[i], batch, sizeof batch);
    opened(state);
    for (int i = 0; i < 3; i++) {
        write_file(state, "data_batch_2.bin", batch, sizeof batch);
        cut.name = "/data_batch_2.bin", cut.opens = 1, cut.bytes = lengths[i];
        refused(state, "cannot read record 1 of 2");
        cut.name = NULL;
    }
}

// A picture is opened twice: for its header, and for its pixels.
static void pictures(void **state) {
    static const char picture[] = "P6\n3 2\n255\nabcdefghijklmnopqr",
                      labels[] = "P5\n3 2\n255\nabcabc";
    static const char *const folders[] = {"train", "test"};
    for (int i = 0; i < 2; i++) {
        char name[16], *path = temp_folder_path(state, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        free(path);
        snprintf(name, sizeof name, "%s/0.ppm", folders[i]);
        write_file(state, name, picture, sizeof picture - 1);
        snprintf(name, sizeof name, "%s/0.pgm", folders[i]);
        write_file(state, name, labels, sizeof labels - 1);
    }
    opened(state);
    cut.name = "test/0.ppm", cut.opens = 2, cut.bytes = sizeof picture - 2; // its last byte
    refused(state, "row 1 cannot be read");
    write_file(state, "test/0.ppm", picture, sizeof picture - 1);
    cut.name = "train/0.pgm", cut.opens = 2, cut.bytes = sizeof labels - 1 - 4;
    refused(state, "row 0 cannot be read");
    cut.name = NULL;
}

static void tokens(void **state) {
    static const uint16_t stream[] = {1, 2, 3, 4, 0, 2, 3, 4};
    write_file(state, "train.bin", stream, sizeof stream);
    write_file(state, "val.bin", stream, sizeof stream);
    opened(state);
    cut.name = "/val.bin", cut.opens = 1, cut.bytes = sizeof stream - 1;
    refused(state, "became shorter while it was read");
    cut.name = NULL;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(records), IN_FOLDER(pictures), IN_FOLDER(tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
