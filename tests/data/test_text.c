/* test_text.c: text and token files become windows and next tokens, checked value by value; each
 * invalid file gives one line that names the file and the mistake.
 */
#include "tests/rigs/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/memory.h"
#include "common/data/text.h"
#include "tests/rigs/temp_folder.h"

// A C string literal that may contain NULs, and its length.
#define BYTES(text) (text), sizeof(text) - 1

static void write_file(void **state, const char *name, const void *bytes, size_t count) {
    char *path = temp_folder_path(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
    free(path);
}

static DataSource *open_named(void **state, const char *name, DataOptions shape, Error *err) {
    char *path = temp_folder_path(state, name);
    DataSource *source = dataset_open_with(
        &(DataOptions){.name = path, .context = shape.context, .vocabulary = shape.vocabulary},
        err);
    free(path);
    return source;
}

static DataSource *must_open(void **state, const char *name, DataOptions shape) {
    Error err = {0};
    DataSource *source = open_named(state, name, shape, &err);
    if (!source) fail_msg("%s", err.message);
    return source;
}

static void expect_error(void **state, const char *name, DataOptions shape, const char *part) {
    Error err = {0};
    DataSource *source = open_named(state, name, shape, &err);
    if (source) fail_msg("%s was opened, and should say: %s", name, part);
    assert_int_equal(err.status, STATUS_USAGE);
    if (!strstr(err.message, part) || strchr(err.message, '\n'))
        fail_msg("\"%s\" does not say: %s", err.message, part);
}

// Compares a window and its next tokens, as characters of the source.
static void expect_window(const DataSource *source, const Dataset *set, size_t index,
                          const char *window, const char *after) {
    const char *const wanted[] = {window, after};
    for (int part = 0; part < 2; part++) {
        int64_t tokens[16];
        char got[16 * TEXT_CHARACTER_ROOM] = "", one[TEXT_CHARACTER_ROOM];
        if (part == 0)
            dataset_sample_tokens(set, index, tokens);
        else
            dataset_sample_labels(set, index, NULL, 3, tokens);
        for (size_t i = 0; i < set->shape[0]; i++) {
            size_t used = text_character(source, (size_t)tokens[i], one);
            assert_int_equal(used, strlen(one));
            strcat(got, one);
        }
        assert_string_equal(got, wanted[part]);
    }
}

// 36 training characters of one to four bytes, and 4 test characters: z, which the training part
// lacks, "at", and Z, which it lacks too.
#define TRAINING "the cat sat on the mat; and \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 tooo"
#define UNKNOWN  "\xef\xbf\xbd"

static void expect_cat(const DataSource *source) {
    const Dataset *train = &source->train, *test = &source->test;
    assert_string_equal(source->name, "text");
    assert_int_equal(train->token_count, 36);
    assert_int_equal(test->token_count, 4);
    assert_int_equal(train->count, 11); // 35 / 3, the last two characters are unused
    assert_int_equal(test->count, 1);
    assert_int_equal(train->shape[0], 3);
    assert_int_equal(dataset_sample_size(train), 3);
    assert_int_equal(dataset_label_size(train), 3);
    assert_true(dataset_has_labels(train) && !train->dense);
    // Classes in order: ' ' ; a c d e h m n o s t, the three multibyte characters, the unknown
    // character.
    assert_int_equal(train->classes, 16);
    assert_int_equal(test->classes, 16);
    expect_window(source, train, 0, "the", "he ");
    expect_window(source, train, 1, " ca", "cat");
    expect_window(source, train, 9, " \xc3\xa9\xe4\xb8\xad",
                  "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80");
    expect_window(source, train, 10, "\xf0\x9f\x98\x80 t", " to");
    expect_window(source, test, 0, UNKNOWN "at", "at" UNKNOWN);
    int64_t tokens[3];
    dataset_sample_tokens(train, 0, tokens);
    assert_true(tokens[0] == 11 && tokens[1] == 6 && tokens[2] == 5); // in ascending order
}

static void characters_become_windows(void **state) {
    write_file(state, "cat.txt", BYTES(TRAINING "zatZ"));
    DataSource *source = must_open(state, "cat.txt", (DataOptions){.context = 3});
    expect_cat(source);
    dataset_close(source);
    char *path = temp_folder_path(state, "cat.txt.gz");
    gzFile file = gzopen(path, "wb");
    assert_true(gzwrite(file, BYTES(TRAINING "zatZ")) == sizeof(TRAINING "zatZ") - 1);
    gzclose(file);
    free(path);
    source = must_open(state, "cat.txt.gz", (DataOptions){.context = 3});
    expect_cat(source);
    dataset_close(source);
}

static void vocabulary(void **state) {
    char utf8[TEXT_CHARACTER_ROOM];
    write_file(state, "known.txt", BYTES(TRAINING "tato"));
    DataSource *source = must_open(state, "known.txt", (DataOptions){.context = 3});
    assert_int_equal(source->train.classes, 15); // without an unknown character
    dataset_close(source);
    source = must_open(state, "known.txt", (DataOptions){.context = 3, .vocabulary = 20});
    assert_int_equal(source->train.classes, 20);
    assert_int_equal(source->test.classes, 20);
    assert_int_equal(text_character(source, 19, utf8), 3); // no such token: U+FFFD
    assert_string_equal(utf8, UNKNOWN);
    dataset_close(source);
    expect_error(state, "known.txt", (DataOptions){.context = 3, .vocabulary = 14},
                 "known.txt: has 15 different tokens, --vocabulary is 14");
}

// The first and last character of each encoded length, and the characters around the surrogates.
static void ends_of_the_ranges(void **state) {
    static const char *const ends[] = {
        "\x01",         "\x7f",         "\xc2\x80",     "\xdf\xbf",         "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    enum { ENDS = sizeof ends / sizeof *ends };
    char text[8 * ENDS] = "", utf8[TEXT_CHARACTER_ROOM];
    for (int i = 0; i < 2 * ENDS; i++) strcat(text, ends[i % ENDS]);
    write_file(state, "ends.txt", text, strlen(text));
    DataSource *source = must_open(state, "ends.txt", (DataOptions){.context = 1});
    assert_int_equal(source->train.classes, ENDS);
    for (size_t i = 0; i < ENDS; i++) {
        assert_int_equal(text_character(source, i, utf8), strlen(ends[i]));
        assert_string_equal(utf8, ends[i]);
    }
    dataset_close(source);
    write_file(state, "last.txt", BYTES("a\xed\xbf\xbf")); // the last surrogate
    expect_error(state, "last.txt", (DataOptions){.context = 1}, "byte 1 is not UTF-8");
}

// The training part is nine tenths of the characters, rounded down.
static void training_part(void **state) {
    for (size_t count = 20; count < 31; count++) {
        write_file(state, "part.txt", "abcdefghijklmnopqrstuvwxyz12345", count);
        DataSource *source = must_open(state, "part.txt", (DataOptions){.context = 1});
        assert_int_equal(source->train.token_count, count * 9 / 10);
        assert_int_equal(source->test.token_count, count - count * 9 / 10);
        assert_int_equal(source->test.count, source->test.token_count - 1);
        dataset_close(source);
    }
}

// A text of several reads; the buffer doubles with each.
static void long_text(void **state) {
    enum { COUNT = 5 << 19, LETTERS = 26 };
    char *text = malloc(COUNT);
    for (size_t i = 0; i < COUNT; i++) text[i] = (char)('a' + i % LETTERS);
    write_file(state, "long.txt", text, COUNT);
    free(text);
    DataSource *source = must_open(state, "long.txt", (DataOptions){.context = 3});
    const Dataset *sets[] = {&source->train, &source->test};
    size_t at = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < sets[s]->token_count; i++, at++)
            if (sets[s]->tokens[i] != at % LETTERS) fail_msg("character %zu", at);
    assert_int_equal(at, COUNT);
    dataset_close(source);
}

static void shipped(void **state) {
    (void)state;
    Error err = {0};
    DataSource *source = dataset_open("text", 0, &err);
    if (!source) fail_msg("%s", err.message);
    assert_int_equal(source->train.token_count + source->test.token_count, 1104330);
    assert_int_equal(source->train.token_count, 993897);
    assert_int_equal(source->train.classes, 74); // of 76 characters, 3 occur only in the test part
    assert_int_equal(source->train.count, 993896 / DATASET_CONTEXT);
    assert_int_equal(source->test.count, 110432 / DATASET_CONTEXT);
    dataset_close(source);
}

static void broken_texts(void **state) {
    DataOptions shape = {.context = 3};
    expect_error(state, "none.txt", shape, "none.txt: No such file");
    write_file(state, "empty.txt", "", 0);
    expect_error(state, "empty.txt", shape, "empty.txt: a part of it has 0 tokens");
    write_file(state, "short.txt", BYTES("too short for three"));
    expect_error(state, "short.txt", shape, "a part of it has 2 tokens; a sample is 3 and their");
    const struct {
        const char *bytes, *says;
    } broken[] = {{"ab\xff", "byte 2 is not UTF-8"},
                  {"ab\x80", "byte 2 is not UTF-8"},
                  {"\xc3", "byte 0 is not UTF-8"},
                  {"a\xc3(", "byte 1 is not UTF-8"},
                  {"\xc0\xaf", "byte 0 is not UTF-8"},
                  {"\xe0\x80\xaf", "byte 0"},
                  {"x\xed\xa0\x80", "byte 1"},
                  {"\xf4\x90\x80\x80", "byte 0"},
                  {"\xf0\x9f\x98", "byte 0 is not UTF-8"},
                  {"\xf8\x88\x80\x80\x80", "byte 0"},
                  {"\xf9\x80\x80\x80", "byte 0"}}; // would be a 4-byte character with bit 5 cleared
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_file(state, "broken.txt", broken[i].bytes, strlen(broken[i].bytes));
        expect_error(state, "broken.txt", shape, broken[i].says);
    }
    write_file(state, "half.txt.gz", BYTES("\x1f\x8b\x08\0\0\0\0\0\0\x03KL"));
    expect_error(state, "half.txt.gz", shape, "half.txt.gz: ");

    char *path = temp_folder_path(state, "more.txt.gz");
    gzFile file = gzopen(path, "wb");
    assert_int_equal(gzwrite(file, BYTES(TRAINING "zatZ")), sizeof(TRAINING "zatZ") - 1);
    gzclose(file);
    FILE *more = fopen(path, "ab");
    fputs("garbage!", more);
    fclose(more);
    free(path);
    expect_error(state, "more.txt.gz", shape,
                 "more.txt.gz: bytes that are not gzip's follow the gzip stream");
}

// ---- token files -------------------------------------------------------------------------------

static void write_tokens(void **state, const char *name, const uint16_t *tokens, size_t count) {
    char *path = temp_folder_path(state, "tokens");
    (void)mkdir(path, 0700);
    free(path);
    write_file(state, name, tokens, count * sizeof *tokens);
}

static void expect_seven(void **state, size_t vocabulary, size_t classes) {
    DataOptions shape = {.context = 3, .vocabulary = vocabulary};
    DataSource *source = must_open(state, "tokens", shape);
    int64_t window[3], after[3];
    assert_string_equal(source->name, "tokens");
    assert_int_equal(source->train.count, 2);
    assert_int_equal(source->test.count, 1);
    assert_int_equal(source->train.classes, classes);
    assert_int_equal(source->test.classes, classes);
    dataset_sample_tokens(&source->train, 1, window);
    dataset_sample_labels(&source->train, 1, NULL, 0, after);
    assert_true(window[0] == 300 && window[1] == 5 && window[2] == 6);
    assert_true(after[0] == 5 && after[1] == 6 && after[2] == 7);
    dataset_close(source);
}

static void token_files(void **state) {
    static uint16_t with_header[512 + 7] = {0xd888, 0x0134, 1, 0, 7, 0};
    const uint16_t train[] = {1, 2, 3, 300, 5, 6, 7}, val[] = {4, 4, 0, 299};
    write_tokens(state, "tokens/train.bin", train, 7);
    write_tokens(state, "tokens/val.bin", val, 4);
    expect_seven(state, 0, 301);
    expect_seven(state, 50257, 50257);
    expect_seven(state, 301, 301);
    expect_error(state, "tokens", (DataOptions){.context = 3, .vocabulary = 300},
                 "train.bin: has 301 different tokens, --vocabulary is 300");
    memcpy(with_header + 512, train, sizeof train);
    write_tokens(state, "tokens/train.bin", with_header, 512 + 7);
    expect_seven(state, 0, 301);
    const uint16_t zeros[4] = {0};
    write_tokens(state, "tokens/train.bin", zeros, 4);
    write_tokens(state, "tokens/val.bin", zeros, 4);
    DataSource *source = must_open(state, "tokens", (DataOptions){.context = 3});
    assert_int_equal(source->train.classes, 1); // only token 0
    dataset_close(source);
}

static void broken_token_files(void **state) {
    static uint16_t header[512 + 4] = {0xd888, 0x0134, 1, 0, 7, 0};
    const uint16_t good[] = {1, 2, 3, 4}, large[] = {1, 2, 3, 5};
    DataOptions shape = {.context = 3};
    write_tokens(state, "tokens/train.bin", good, 4);
    write_tokens(state, "tokens/val.bin", large, 4);
    expect_error(state, "tokens", shape, "val.bin: token 5, the vocabulary is 0..4");
    write_tokens(state, "tokens/val.bin", good, 3);
    expect_error(state, "tokens", shape, "val.bin: a part of it has 3 tokens; a sample is 3");
    write_file(state, "tokens/val.bin", BYTES("1234567"));
    expect_error(state, "tokens", shape, "val.bin: 7 bytes of tokens: must be two for each");
    write_tokens(state, "tokens/val.bin", header, 512 + 4);
    expect_error(state, "tokens", shape, "val.bin: the header says 7 tokens, 8 bytes follow");
    write_tokens(state, "tokens/val.bin", header, 511); // of the known version, and incomplete
    expect_error(state, "tokens", shape, "val.bin: a header of version 1, or half of one");
    header[2] = 2;
    write_tokens(state, "tokens/val.bin", header, 512 + 4);
    expect_error(state, "tokens", shape, "val.bin: a header of version 2");
    write_tokens(state, "tokens/val.bin", header, 100);
    expect_error(state, "tokens", shape, "val.bin: a header of version 2, or half of one");
    char *path = temp_folder_path(state, "tokens/val.bin");
    write_tokens(state, "tokens/val.bin", good, 4);
    if (truncate(path, 1L << 43) == 0) // sparse; some file systems have a lower limit
        expect_error(state, "tokens", shape, "8796093022208 bytes of tokens: must be two for each");
    unlink(path);
    expect_error(state, "tokens", shape, "val.bin: No such file");
    assert_int_equal(mkdir(path, 0700), 0);
    expect_error(state, "tokens", shape, "val.bin: is a folder, not a regular file");
    rmdir(path);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_become_windows),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(ends_of_the_ranges),
        cmocka_unit_test(training_part),
        cmocka_unit_test(long_text),
        cmocka_unit_test(shipped),
        cmocka_unit_test(broken_texts),
        cmocka_unit_test(token_files),
        cmocka_unit_test(broken_token_files),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_remove);
}
