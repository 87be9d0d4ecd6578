/* test_hostile_files.c: a hostile file is refused with a line that names its fault, in little
 * memory; the largest valid values are read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <malloc.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/tensor_files/safetensors.h"
#include "tests/rigs/peak_memory.h"
#include "tests/rigs/temp_folder.h"

static void write_raw(const char *path, uint64_t n, const char *header, size_t length,
                      size_t data_bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(&n, 8, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < data_bytes; i++) fputc('d', file);
    assert_int_equal(fclose(file), 0);
}

// Reading fails with the path and this message, and returns no tensors.
static void assert_refused(const char *path, const char *message) {
    SafeTensors content;
    Error err = {0};
    char *expected = memory_format("%s: %s", path, message);
    assert_int_equal(safetensors_read(path, &content, &err), -1);
    assert_string_equal(err.message, expected);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_null(content.entries);
    assert_null(content.buffer);
    assert_int_equal(content.count, 0);
    free(expected);
}

typedef struct Hostile {
    const char *header;
    size_t data_bytes;
    const char *message;
} Hostile;

#define F32(shape, offsets) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A(shape, offsets)   "{\"a\":" F32(shape, offsets) "}"
#define AB(a, b)            "{\"a\":" F32("[1]", a) ",\"b\":" F32("[1]", b) "}"
#define NOT_ENTRY           "tensor a: is not an object of dtype, shape and data_offsets"
#define CONTROL             "a name or text in the header holds a control character"
#define LONG_40             "1234567890123456789012345678901234567890"
#define LONG_160            LONG_40 LONG_40 LONG_40 LONG_40
#define LONG_159            LONG_40 LONG_40 LONG_40 "123456789012345678901234567890123456789"
#define LONG_255            LONG_40 LONG_40 LONG_40 LONG_40 LONG_40 LONG_40 "123456789012345"
#define LONG_63             LONG_40 "12345678901234567890123"
#define ONE_MORE            "1 byte at the end belongs to no tensor" // the header is valid
#define META(fields)        "{\"__metadata__\":{" fields "},\"a\":" F32("[1]", "[0,4]") "}"

static const Hostile hostile[] = {
    {"", 0, "the header is not valid JSON, at byte 0 of it"},
    {"{\"a\":", 0, "the header is not valid JSON, at byte 5 of it"},
    {"[1]", 0, "the header is not one JSON object"},
    {" {}", 0, "the header is not one JSON object"},
    {"{} {}", 0, "the header is not one JSON object"},
    {"{\"a\":7}", 0, NOT_ENTRY},
    {"{\"a\":[]}", 0, NOT_ENTRY},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, NOT_ENTRY},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, NOT_ENTRY},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, NOT_ENTRY},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     NOT_ENTRY},
    {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     "tensor a: dtype BF16 is not supported (F32 and I64 are): save model.float()"},
    {"{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     "tensor a: dtype is not a string"},
    {A("1", "[0,4]"), 4, "tensor a: shape is not an array"},
    {A("[-1]", "[0,4]"), 4, "tensor a: shape holds something else than a whole number up to 2^53"},
    {A("[0.5]", "[0,2]"), 2, "tensor a: shape holds something else than a whole number up to 2^53"},
    {A("[\"1\"]", "[0,4]"), 4,
     "tensor a: shape holds something else than a whole number up to 2^53"},
    {A("[4611686018427387904]", "[0,4]"), 4,
     "tensor a: shape holds something else than a whole number up to 2^53"},
    {A("[1e300]", "[0,4]"), 4,
     "tensor a: shape holds something else than a whole number up to 2^53"},
    {A("[9007199254740994]", "[0,4]"), 4,
     "tensor a: shape holds something else than a whole number up to 2^53"},
    {A("[9007199254740992]", "[0,4]"), 4,
     "tensor a: data_offsets [0, 4) do not match shape [9007199254740992] F32 (36028797018963968 "
     "bytes)"},
    {A("[1,1,1,1,1]", "[0,4]"), 4, "tensor a: more than 4 dimensions"},
    {A("[1,1,1,1]", "[0,4]"), 5, ONE_MORE},
    {A("[4294967296,4294967296]", "[0,0]"), 0, "tensor a: the product of its shape overflows"},
    {A("[2147483648,2147483649]", "[0,8589934592]"), 4,
     "tensor a: the product of its shape overflows"}, // wraps around without a check
    {A("[10,10]", "[0,40]"), 40,
     "tensor a: data_offsets [0, 40) do not match shape [10, 10] F32 (400 bytes)"},
    {A("[1]", "[4,0]"), 4, "tensor a: data_offsets [4, 0) do not match shape [1] F32 (4 bytes)"},
    {A("[1]", "[0]"), 4, "tensor a: data_offsets is not an array of two numbers"},
    {A("[1]", "[0,4,8]"), 4, "tensor a: data_offsets is not an array of two numbers"},
    {A("[1]", "[-4,0]"), 4,
     "tensor a: data_offsets holds something else than a whole number up to 2^53"},
    {A("[2]", "[0,8]"), 4, "the file is truncated: the tensors need 8 bytes, 4 follow the header"},
    {A("[1]", "[0,4]"), 6, "2 bytes at the end belong to no tensor"},
    {A("[1]", "[4,8]"), 8, "4 bytes before tensor a belong to no tensor"},
    {AB("[0,4]", "[0,4]"), 4, "tensor b overlaps tensor a"},
    {AB("[4,8]", "[2,6]"), 8, "2 bytes before tensor b belong to no tensor"},
    {AB("[0,4]", "[5,9]"), 9, "1 byte before tensor b belongs to no tensor"},
    {"{\"a\":" F32("[1]", "[0,4]") ",\"b\":" F32("[0]", "[0,0]") "}", 5, ONE_MORE},
    {"{\"b\":" F32("[0]", "[0,0]") ",\"a\":" F32("[1]", "[0,4]") "}", 5, ONE_MORE},
    {"{\"b\":" F32("[1]", "[4,8]") ",\"c\":" F32("[1]", "[8,12]") ",\"a\":" F32("[1]", "[0,4]") "}",
     13, ONE_MORE},
    {"{\"b\":" F32("[1]", "[4,8]") ",\"c\":" F32("[1]", "[8,12]") ",\"b\":" F32("[1]", "[0,4]") "}",
     12, "tensor b is there twice"},
    {AB("[0,4]", "[8,12]"), 12, "4 bytes before tensor b belong to no tensor"},
    {"{\"a\":" F32("[1]", "[0,4]") ",\"a\":" F32("[1]", "[4,8]") "}", 8, "tensor a is there twice"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not one object of strings"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: k is not a string"},
    {"{\"__metadata__\":{\"crc32\":\"zz\"}}", 0, "the file is damaged: its crc32 is zz"},
    {"{\"__metadata__\":{\"crc32\":\"00000000\"}}", 0,
     "the file is damaged: its checksum is 0189ad9d, the header says 00000000"},
    {"{\"__metadata__\":{\"crc32\":\"0000000\"}}", 0, "the file is damaged: its crc32 is 0000000"},
    {"{\"__metadata__\":{\"crc32\":\"000000000\"}}", 0,
     "the file is damaged: its crc32 is 000000000"},
    // The key's name occurs elsewhere, and spaces surround its colon.
    {META("\"k\":\"crc32\",\"crc32\"\t:  \"00000000\""), 4,
     "the file is damaged: its checksum is e3167368, the header says 00000000"},
    // A value like the key and a tensor of its name, each followed by a text of eight characters.
    {META("\"k\":\"crc32\",\"abcdefgh\":\"v\",\"crc32\":\"00000000\""), 4,
     "the file is damaged: its checksum is 26ddab85, the header says 00000000"},
    {"{\"crc32\":{        \"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"__metadata__\":{\"crc32\":\"00000000\"}}",
     4, "the file is damaged: its checksum is 2d38c6d8, the header says 00000000"},
    {"{\"crc32\":" F32("[1]", "[0,4]") ",\"__metadata__\":{\"crc32\":\"ffffffff\"}}", 4,
     "the file is damaged: its checksum is b6253d60, the header says ffffffff"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is not one object of strings"},
    {META("\"k\":\"" LONG_255 "6\""), 4, "__metadata__: k is too long (255 bytes at most)"},
    {META("\"k\":\"" LONG_255 "\""), 5, ONE_MORE},
    {META("\"" LONG_63 "4\":\"v\""), 4,
     "__metadata__: " LONG_40 "12345678901234567890 is too long (255 bytes at most)"},
    {META("\"" LONG_63 "\":\"v\""), 5, ONE_MORE},
    {"{\"" LONG_160 "\":" F32("[1]", "[0,4]") "}", 4,
     "tensor " LONG_160 ": the name is longer than 159 bytes"},
    {"{\"" LONG_159 "\":" F32("[1]", "[0,4]") "}", 5, ONE_MORE},
    {"{\"a b\\\\\":" F32("[1]", "[0,4]") "}", 5, ONE_MORE},
    {"{\"a\x7f\":" F32("[1]", "[0,4]") "}", 4, "tensor a?: the name holds a control character"},
    {"{\"a\\nb\":" F32("[1]", "[0,4]") "}", 4, "tensor a?b: the name holds a control character"},
    // As C strings "a" and "a, NUL, b" would be the same name.
    {"{\"a\\u0000b\":" F32("[1]", "[0,4]") "}", 4, CONTROL},
    {"{\"a\nb\":" F32("[1]", "[0,4]") "}", 4, CONTROL},
    {"{\"__metadata__\":{\"k\":\"v\\u0000w\"}}", 0, CONTROL},
    {"{\"a\\\\u0000b\":" F32("[1]", "[0,4]") "}", 5, // no NUL: an escaped backslash
     ONE_MORE},
    {A("[1]", "[0,4]") " \t\r\n", 5, ONE_MORE},
};

static void test_hostile_headers(void **state) {
    char *path = temp_folder_path(state, "hostile.safetensors");
    size_t in_use = 0;
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
            const Hostile *h = &hostile[i];
            write_raw(path, strlen(h->header), h->header, strlen(h->header), h->data_bytes);
            assert_refused(path, h->message);
        }
        if (round == 0) in_use = mallinfo2().uordblks;
    }
    // Refusing a file leaks no memory. (The heap keeps some kilobytes for later calls.)
    assert_in_range(mallinfo2().uordblks, 0, in_use + 16384);
    free(path);
}

// Brackets nested deeper than any stack: the parser must have a limit.
static void test_deep_nesting(void **state) {
    enum { DEPTH = 1000000 };
    char *path = temp_folder_path(state, "deep.safetensors");
    char *header = memory_zalloc(DEPTH + 6);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    write_raw(path, DEPTH + 5, header, DEPTH + 5, 0);
    SafeTensors content;
    Error err = {0};
    assert_int_equal(safetensors_read(path, &content, &err), -1);
    assert_non_null(strstr(err.message, "the header is not valid JSON"));
    free(header);
    free(path);
}

// A file whose parsing would cost many times its size is refused by its text.
static int read_costly(const char *path) {
    SafeTensors content;
    Error err = {0};
    if (safetensors_read(path, &content, &err) == 0) return -1;
    return strstr(err.message, " the most") ? 0 : -1;
}

static void write_costly(const char *path, const char *first, const char *item, size_t count,
                         const char *last) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fputs(first, out);
    for (size_t i = 0; i < count; i++) fprintf(out, item, i);
    fputs(last, out);
    fclose(out);
    write_raw(path, bytes, text, bytes, 0);
    free(text);
}

static void test_costly_headers(void **state) {
    char *path = temp_folder_path(state, "costly.safetensors");
    const char *empty = "\"%zx\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},";
    const char *last = "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    write_costly(path, "{", empty, 400000, last); // the header is too large
    assert_peak_below(64, read_costly, path);
    write_costly(path, "{", empty, SAFE_TENSORS_MAX + 1, last); // too many tensors
    assert_peak_below(64, read_costly, path);
    write_costly(path, "{\"a\":[0", ",0%.0zu", 3000000, "]}"); // too many values
    assert_peak_below(64, read_costly, path);
    write_costly(path, "{\"__metadata__\":{\"0\":\"\"", ",\"k%zu\":\"\"", 100000, "}}");
    assert_peak_below(64, read_costly, path);
    // The largest number of tensors that is read.
    write_costly(path, "{", empty, SAFE_TENSORS_MAX, last);
    assert_refused(path, "has 65537 tensors, 65536 are the most that are read");
    write_costly(path, "{\"__metadata__\":{\"k\":\"\"},", empty, SAFE_TENSORS_MAX, last);
    assert_refused(path, "has 65537 tensors, 65536 are the most that are read");
    write_costly(path, "{\"__metadata__\":{\"k\":\"\"},", empty, SAFE_TENSORS_MAX - 1, last);
    SafeTensors content;
    Error err = {0};
    CHECK_OK(safetensors_read(path, &content, &err) == 0, err);
    safetensors_free(&content);
    write_costly(path, "{\"a\":[0", ",0%.0zu", 1048576 - 2, "]}");
    assert_refused(path, "the header has 1048577 values, 1048576 are the most");
    write_costly(path, "{\"a\":[0", ",0%.0zu", 1048576 - 3, "]}");
    assert_refused(path, NOT_ENTRY);
    write_costly(path, "{\"__metadata__\":{\"0\":\"\"", ",\"k%zu\":\"\"", 1024, "}}");
    assert_refused(path, "__metadata__ has 1025 strings, 1024 are the most");
    write_costly(path, "{\"__metadata__\":{\"0\":\"\"", ",\"k%zu\":\"\"", 1023, "}}");
    CHECK_OK(safetensors_read(path, &content, &err) == 0, err);
    assert_string_equal(safetensors_meta(&content, "k1022"), "");
    safetensors_free(&content);
    free(path);
}

// A file that loses its last `cut` bytes while it is read.
static long cut;

FILE *__real_file_open_stream(const char *path, size_t *bytes, Error *err);
FILE *__wrap_file_open_stream(const char *path, size_t *bytes, Error *err);

FILE *__wrap_file_open_stream(const char *path, size_t *bytes, Error *err) {
    size_t whole = 0;
    FILE *file = __real_file_open_stream(path, &whole, err);
    if (bytes) *bytes = whole;
    if (file && cut > 0) assert_int_equal(truncate(path, (long)whole - cut), 0);
    return file;
}

static void test_shrinking(void **state) {
    static const char header[] = A("[1]", "[0,4]");
    char *path = temp_folder_path(state, "shrinking.safetensors");
    static const long cuts[] = {1, 5, 8 + (long)sizeof header - 1 + 4};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_raw(path, sizeof header - 1, header, sizeof header - 1, 4);
        cut = cuts[i]; // of the tensor, of the header too, all
        assert_refused(path, "the file became shorter while read");
        cut = 0;
    }
    free(path);
}

// Weights in torch.save's format, new and old.
static void test_foreign_weights(void **state) {
    char *path = temp_folder_path(state, "weights.pt");
    const struct {
        const char *bytes;
        size_t count;
        const char *says;
    } files[] = {
        {"PK\3\4\0\0\x08\x08\0\0\0\0", 12, "is a zip archive, as torch.save writes it; save it"},
        {"\x80\2\x8a\x0al\xfc\x9c"
         "F\xf9 j\xa8P\x19.",
         14, "is a pickle, as torch.save writes it; save it"},
        {"\x80\4\x95\x10\0\0\0\0\0\0\0", 11, "is a pickle"},
        {"PK\3\4", 4, "is a zip archive"},
        {"PK\3\5", 4, "too short for a safetensors file: 4 bytes"},
        {"PK\2\4", 4, "too short for a safetensors file: 4 bytes"},
        {"PJ\3\4", 4, "too short for a safetensors file: 4 bytes"},
        {"QK\3\4", 4, "too short for a safetensors file: 4 bytes"},
        {"\x80\2", 2, "is a pickle"},
        {"\x80\5", 2, "is a pickle"},
        {"\x80\1", 2, "too short for a safetensors file: 2 bytes"},
        {"\x80\6", 2, "too short for a safetensors file: 2 bytes"},
        {"\x81\2", 2, "too short for a safetensors file: 2 bytes"},
        {"\x80\2\0\0\0\0\0\0{", 9, "the file is truncated: a header of 640 bytes"},
        {"PK\3\4\0\0\0\0{", 9, "not a safetensors file: a header of 67324752 bytes"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        SafeTensors content;
        Error err = {0};
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(files[i].bytes, 1, files[i].count, file), files[i].count);
        fclose(file);
        assert_int_equal(safetensors_read(path, &content, &err), -1);
        check_message(&err, files[i].says);
        if (strstr(files[i].says, "is a"))
            check_message(&err, "save_file({k: v.contiguous() for k, v in w.items()}, ");
    }
    free(path);
}

static void test_sizes_of_the_file(void **state) {
    char *path = temp_folder_path(state, "size.safetensors");
    write_raw(path, UINT64_MAX, "{}", 2, 0);
    assert_refused(path, "not a safetensors file: a header of 18446744073709551615 bytes "
                         "(16777216 are the most)");
    write_raw(path, 16777217, "{}", 2, 0);
    assert_refused(path, "not a safetensors file: a header of 16777217 bytes (16777216 are the "
                         "most)");
    write_raw(path, 16777216, "{}", 2, 0);
    assert_refused(path,
                   "the file is truncated: a header of 16777216 bytes is announced, 2 follow");
    write_raw(path, 3, "{}", 2, 0);
    assert_refused(path, "the file is truncated: a header of 3 bytes is announced, 2 follow");
    assert_int_equal(truncate(path, 8), 0);
    assert_refused(path, "the file is truncated: a header of 3 bytes is announced, 0 follow");
    assert_int_equal(truncate(path, 7), 0);
    assert_refused(path, "too short for a safetensors file: 7 bytes");
    assert_int_equal(truncate(path, 1), 0);
    assert_refused(path, "too short for a safetensors file: 1 byte");
    assert_int_equal(truncate(path, 0), 0);
    assert_refused(path, "too short for a safetensors file: 0 bytes");
    assert_int_equal(unlink(path), 0);
    assert_refused(path, "No such file or directory");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "is a FIFO, not a regular file");
    assert_refused(*state, "is a folder, not a regular file");
    free(path);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_hostile_headers),   IN_FOLDER(test_deep_nesting),
        IN_FOLDER(test_costly_headers),    IN_FOLDER(test_foreign_weights),
        IN_FOLDER(test_sizes_of_the_file), IN_FOLDER(test_shrinking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
