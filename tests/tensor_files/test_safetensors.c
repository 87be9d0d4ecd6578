/* test_safetensors.c: what is written reads back; a hostile file gets the line that names its
 * fault; a module takes a file wholly or not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/tensor_files/safetensors.h"
#include "tests/rigs/peak_memory.h"
#include "tests/rigs/temp_folder.h"

static SafeEntry make_entry(const char *name, DType dtype, int ndim, const size_t *shape,
                            const void *data) {
    SafeEntry entry = {.dtype = dtype, .ndim = ndim, .data = data, .bytes = dtype_bytes(dtype)};
    snprintf(entry.name, sizeof entry.name, "%s", name);
    for (int d = 0; d < ndim; d++) {
        entry.shape[d] = shape[d];
        entry.bytes *= shape[d];
    }
    return entry;
}

static void assert_same_entry(const SafeEntry *a, const SafeEntry *b) {
    assert_non_null(b);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_memory_equal(a->shape, b->shape, sizeof a->shape);
    assert_int_equal(a->bytes, b->bytes);
    if (a->bytes > 0) assert_memory_equal(a->data, b->data, a->bytes);
}

static void test_round_trip(void **state) {
    const float values[6] = {1.5f, -0.0f, 3e-45f, 1e38f, 0.1f, -7};
    const int64_t steps[3] = {INT64_MIN, 0, INT64_MAX};
    SafeEntry entries[] = {
        make_entry("odd", DTYPE_F32, 1, (size_t[]){3}, values),
        make_entry("fc1.weight", DTYPE_F32, 4, (size_t[]){1, 2, 1, 3}, values),
        make_entry("steps", DTYPE_I64, 1, (size_t[]){3}, steps),
        make_entry("scalar", DTYPE_F32, 0, NULL, values + 4),
        make_entry("empty", DTYPE_F32, 2, (size_t[]){5, 0}, NULL),
        make_entry("na\"me\\ \xc3\xa9", DTYPE_I64, 0, NULL, steps),
    };
    const size_t count = sizeof entries / sizeof entries[0];
    SafeMeta meta[] = {{"format", "pt"}, {"step", "17"}, {"quote", "\"\n"}};
    SafeTensors content = {.entries = entries, .count = count, .meta = meta, .meta_count = 3};
    char *path = temp_folder_path(state, "weights.safetensors");
    Error err = {0};
    assert_int_equal(safetensors_write(path, &content, &err), 0);

    SafeTensors back;
    assert_int_equal(safetensors_read(path, &back, &err), 0);
    assert_int_equal(back.count, count);
    for (size_t i = 0; i < count; i++) {
        const SafeEntry *entry = safetensors_find(&back, entries[i].name);
        assert_same_entry(&entries[i], entry);
        size_t place = (size_t)((const char *)entry->data - (const char *)back.buffer);
        assert_int_equal(place % dtype_bytes(entry->dtype), 0);
    }
    assert_string_equal(safetensors_meta(&back, "format"), "pt");
    assert_string_equal(safetensors_meta(&back, "quote"), "\"\n");
    assert_null(safetensors_meta(&back, "none"));
    assert_null(safetensors_find(&back, "none"));
    safetensors_free(&back);
    free(path);
}

static void test_layout_of_the_file(void **state) {
    const float x = 1;
    const int64_t n = 2;
    SafeEntry entries[] = {make_entry("x", DTYPE_F32, 0, NULL, &x),
                           make_entry("n", DTYPE_I64, 0, NULL, &n)};
    char *path = temp_folder_path(state, "two.safetensors");
    assert_int_equal(safetensors_write(path, &(SafeTensors){.entries = entries, .count = 2}, NULL),
                     0);
    unsigned char bytes[1024];
    FILE *file = fopen(path, "rb");
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    size_t header = bytes[0] + 256u * bytes[1];
    assert_int_equal(length, 8 + header + 12);
    assert_int_equal(header % 8, 0);
    assert_int_equal(bytes[8], '{');
    assert_memory_equal(bytes + 8 + header, &n, 8); // the wide one first
    assert_memory_equal(bytes + 8 + header + 8, &x, 4);
    free(path);
}

static void test_nothing_to_write(void **state) {
    char *path = temp_folder_path(state, "none.safetensors");
    SafeTensors back;
    Error err = {0};
    assert_int_equal(safetensors_write(path, &(SafeTensors){0}, &err), 0);
    assert_int_equal(safetensors_read(path, &back, &err), 0);
    assert_int_equal(back.count, 0);
    safetensors_free(&back);
    safetensors_free(NULL);
    free(path);
}

// ---- hostile files ------------------------------------------------------------------------------

static void write_raw(const char *path, uint64_t n, const char *header, size_t length,
                      size_t data_bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(&n, 8, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < data_bytes; i++) fputc('d', file);
    assert_int_equal(fclose(file), 0);
}

// The file must be refused with this message behind its path, and leave nothing.
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
#define LONG_320            LONG_160 LONG_160

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
    {A("[1,1,1,1,1]", "[0,4]"), 4, "tensor a: more than 4 dimensions"},
    {A("[4294967296,4294967296]", "[0,0]"), 0, "tensor a: the product of its shape overflows"},
    {A("[2147483648,2147483649]", "[0,8589934592]"), 4,
     "tensor a: the product of its shape overflows"}, // 2^64 bytes and a bit: wraps without a check
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
    {AB("[0,4]", "[8,12]"), 12, "4 bytes before tensor b belong to no tensor"},
    {"{\"a\":" F32("[1]", "[0,4]") ",\"a\":" F32("[1]", "[4,8]") "}", 8, "tensor a is there twice"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not one object of strings"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: k is not a string"},
    {"{\"__metadata__\":{\"crc32\":\"zz\"}}", 0, "the file is damaged: its crc32 is zz"},
    {"{\"__metadata__\":{\"crc32\":\"00000000\"}}", 0,
     "the file is damaged: its checksum is 0189ad9d, the header says 00000000"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is not one object of strings"},
    {"{\"__metadata__\":{\"k\":\"" LONG_320 "\"}}", 0,
     "__metadata__: k is too long (255 bytes at most)"},
    {"{\"" LONG_160 "\":" F32("[1]", "[0,4]") "}", 4,
     "tensor " LONG_160 ": the name is longer than 159 bytes"},
    {"{\"a\\nb\":" F32("[1]", "[0,4]") "}", 4, "tensor a?b: the name holds a control character"},
    // A C string would end there: "a" and "a, zero, b" would be one name.
    {"{\"a\\u0000b\":" F32("[1]", "[0,4]") "}", 4, CONTROL},
    {"{\"a\nb\":" F32("[1]", "[0,4]") "}", 4, CONTROL},
    {"{\"__metadata__\":{\"k\":\"v\\u0000w\"}}", 0, CONTROL},
    {"{\"a\\\\u0000b\":" F32("[1]", "[0,4]") "}", 5, // no zero, but a backslash and letters
     "1 byte at the end belongs to no tensor"},
};

static void test_hostile_headers(void **state) {
    char *path = temp_folder_path(state, "hostile.safetensors");
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const Hostile *h = &hostile[i];
        write_raw(path, strlen(h->header), h->header, strlen(h->header), h->data_bytes);
        assert_refused(path, h->message);
    }
    free(path);
}

// Brackets nested deeper than any stack: the parser must give up first.
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

// A file that would cost many times its size to read is refused by its text.
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
    write_costly(path, "{", empty, 400000, last); // by the size of its header
    assert_peak_below(64, read_costly, path);
    write_costly(path, "{", empty, SAFE_TENSORS_MAX + 1, last); // by the number of its tensors
    assert_peak_below(64, read_costly, path);
    write_costly(path, "{\"a\":[0", ",0%.0zu", 3000000, "]}"); // by the number of its values
    assert_peak_below(64, read_costly, path);
    write_costly(path, "{\"__metadata__\":{\"0\":\"\"", ",\"k%zu\":\"\"", 100000, "}}");
    assert_peak_below(64, read_costly, path);
    free(path);
}

static void test_many_tensors(void **state) {
    char *path = temp_folder_path(state, "many.safetensors");
    SafeEntry *entries = memory_zalloc((SAFE_TENSORS_MAX + 1) * sizeof *entries);
    for (size_t i = 0; i <= SAFE_TENSORS_MAX; i++) {
        entries[i].dtype = DTYPE_F32;
        entries[i].ndim = 1;
        snprintf(entries[i].name, sizeof entries[i].name, "layers.%zu.weight", i);
    }
    SafeTensors content = {.entries = entries, .count = SAFE_TENSORS_MAX}, back;
    Error err = {0};
    assert_int_equal(safetensors_write(path, &content, &err), 0);
    if (safetensors_read(path, &back, &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(back.count, SAFE_TENSORS_MAX);
    safetensors_free(&back);
    content.count++; // one more is not even written
    assert_int_equal(safetensors_write(path, &content, &err), -1);
    assert_non_null(strstr(err.message, "65537 tensors"));
    assert_int_equal(safetensors_read_header(path, &back, NULL), 0); // what was there is there
    assert_int_equal(back.count, SAFE_TENSORS_MAX);
    safetensors_free(&back);
    free(entries);
    free(path);
}

// Weights as torch.save writes them, in its new and its old form.
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
        {"\x80\2\0\0\0\0\0\0{", 9, "the file is truncated: a header of 640 bytes"},
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
        if (i < 3) check_message(&err, "save_file({k: v.contiguous() for k, v in w.items()}, ");
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
    write_raw(path, 3, "{}", 2, 0);
    assert_refused(path, "the file is truncated: a header of 3 bytes is announced, 2 follow");
    assert_int_equal(truncate(path, 7), 0);
    assert_refused(path, "too short for a safetensors file: 7 bytes");
    assert_int_equal(truncate(path, 0), 0);
    assert_refused(path, "too short for a safetensors file: 0 bytes");
    assert_int_equal(unlink(path), 0);
    assert_refused(path, "No such file or directory");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "is a FIFO, not a regular file");
    assert_refused(*state, "is a folder, not a regular file");
    free(path);
}

// Every proper beginning of a good file is refused.
static void test_every_truncation(void **state) {
    const float values[4] = {1, 2, 3, 4};
    SafeEntry entries[] = {make_entry("a", DTYPE_F32, 1, (size_t[]){3}, values),
                           make_entry("b", DTYPE_F32, 0, NULL, values + 3)};
    char *path = temp_folder_path(state, "short.safetensors");
    assert_int_equal(safetensors_write(path, &(SafeTensors){.entries = entries, .count = 2}, NULL),
                     0);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    for (off_t size = info.st_size - 1; size >= 0; size--) {
        SafeTensors content;
        Error err = {0};
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(safetensors_read(path, &content, &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
    }
    free(path);
}

// ---- modules ------------------------------------------------------------------------------------

// block.weight [2, 3], block.bias [2], and a buffer block.steps (I64 scalar), filled from `first`.
static Module *make_module(Device *device, float first) {
    Module *root = module_create("Root", NULL), *block = module_create("Block", NULL);
    module_add(root, "block", block);
    Tensor *weight = module_add_parameter(block, device, "weight", 2, (size_t[]){2, 3});
    Tensor *bias = module_add_parameter(block, device, "bias", 1, (size_t[]){2});
    Tensor *steps = module_add_buffer(block, device, "steps", DTYPE_I64, 0, NULL);
    float values[8];
    for (int i = 0; i < 8; i++) values[i] = first + (float)i;
    int64_t step = (int64_t)first;
    device_copy(device, weight->data, NULL, values, 24);
    device_copy(device, bias->data, NULL, values + 6, 8);
    device_copy(device, steps->data, NULL, &step, 8);
    return root;
}

static float value_of(Module *module, size_t tensor, size_t index) {
    NamedTensors all = module_tensors(module, MODULE_STATE);
    float values[6];
    const Tensor *t = all.items[tensor].tensor;
    device_copy(NULL, values, t->device, t->data, tensor_bytes(t));
    named_tensors_free(&all);
    return values[index];
}

static void test_module_round_trip(void **state) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    assert_non_null(device);
    Module *from = make_module(device, 10), *to = make_module(device, 50);
    char *path = temp_folder_path(state, "module.safetensors");
    SafeMeta meta = {"format", "pt"};
    assert_int_equal(safetensors_save_module(path, from, &meta, 1, &err), 0);
    assert_int_equal(safetensors_load_module(path, to, &err), 0);
    for (size_t i = 0; i < 6; i++) assert_true(value_of(to, 0, i) == 10 + (float)i);
    for (size_t i = 0; i < 2; i++) assert_true(value_of(to, 1, i) == 16 + (float)i);
    SafeTensors content;
    assert_int_equal(safetensors_read(path, &content, &err), 0);
    assert_int_equal(content.count, 3);
    assert_int_equal(*(const int64_t *)safetensors_find(&content, "block.steps")->data, 10);
    assert_string_equal(safetensors_meta(&content, "format"), "pt");
    safetensors_free(&content);
    module_close(from);
    module_close(to);
    device_close(device);
    free(path);
}

static void test_module_grads(void **state) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    Module *module = make_module(device, 1);
    char *path = temp_folder_path(state, "grads.safetensors");
    NamedTensors parameters = module_tensors(module, MODULE_PARAMETERS);
    Tensor *bias = parameters.items[1].tensor;
    const float grad[2] = {0.25f, -4};
    device_copy(device, bias->grad, NULL, grad, sizeof grad);
    parameters.items[0].tensor->has_grad = false;
    bias->has_grad = true;
    assert_int_equal(safetensors_save_grads(path, module, &err), 0);
    SafeTensors content;
    assert_int_equal(safetensors_read(path, &content, &err), 0);
    assert_int_equal(content.count, 1); // the weight's gradient is None
    assert_memory_equal(safetensors_find(&content, "block.bias")->data, grad, sizeof grad);
    safetensors_free(&content);
    named_tensors_free(&parameters);
    module_close(module);
    device_close(device);
    free(path);
}

// Loads `entries` into a fresh module: refused with `message`, and nothing has changed.
static void assert_not_loaded(void **state, SafeEntry *entries, size_t count, const char *message) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    Module *module = make_module(device, 50);
    char *path = temp_folder_path(state, "module.safetensors");
    char *expected = memory_format("%s: %s", path, message);
    SafeTensors content = {.entries = entries, .count = count};
    assert_int_equal(safetensors_write(path, &content, &err), 0);
    assert_int_equal(safetensors_load_module(path, module, &err), -1);
    assert_string_equal(err.message, expected);
    assert_int_equal(err.status, STATUS_USAGE);
    for (size_t i = 0; i < 6; i++) assert_true(value_of(module, 0, i) == 50 + (float)i);
    for (size_t i = 0; i < 2; i++) assert_true(value_of(module, 1, i) == 56 + (float)i);
    module_close(module);
    device_close(device);
    free(expected);
    free(path);
}

static void test_module_is_strict(void **state) {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const int64_t step = 9;
    SafeEntry weight = make_entry("block.weight", DTYPE_F32, 2, (size_t[]){2, 3}, values);
    SafeEntry turned = make_entry("block.weight", DTYPE_F32, 2, (size_t[]){3, 2}, values);
    SafeEntry bias = make_entry("block.bias", DTYPE_F32, 1, (size_t[]){2}, values);
    SafeEntry steps = make_entry("block.steps", DTYPE_I64, 0, NULL, &step);
    SafeEntry float_steps = make_entry("block.steps", DTYPE_F32, 0, NULL, values);
    SafeEntry extra = make_entry("block.extra", DTYPE_F32, 0, NULL, values);
    assert_not_loaded(
        state, (SafeEntry[]){weight, steps}, 2,
        "holds another model: there is no block.bias in the file, in this model it is [2]");
    assert_not_loaded(
        state, (SafeEntry[]){turned, bias, steps}, 3,
        "holds another model: block.weight is F32 [3, 2] in the file and F32 [2, 3] in this model");
    assert_not_loaded(
        state, (SafeEntry[]){weight, bias, float_steps}, 3,
        "holds another model: block.steps is F32 [] in the file and I64 [] in this model");
    assert_not_loaded(
        state, (SafeEntry[]){weight, extra, bias, steps}, 4,
        "holds another model: there is block.extra [] in the file, and none in this model");
}

// A state_dict of DataParallel's or DistributedDataParallel's wrapper, and of torch.compile's.
static void test_wrapped_names(void **state) {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    SafeEntry bias = make_entry("block.bias", DTYPE_F32, 1, (size_t[]){2}, values);
    SafeEntry wrapped = make_entry("module.block.weight", DTYPE_F32, 2, (size_t[]){2, 3}, values);
    SafeEntry compiled =
        make_entry("_orig_mod.block.weight", DTYPE_F32, 2, (size_t[]){2, 3}, values);
    assert_not_loaded(
        state, (SafeEntry[]){bias, wrapped}, 2,
        "holds another model: there is no block.weight in the file, in this model it is [2, 3] (it "
        "has module.block.weight: a wrapped model was saved: --strip-prefix module.)");
    assert_not_loaded(
        state, (SafeEntry[]){bias, compiled}, 2,
        "holds another model: there is no block.weight in the file, in this model it is [2, 3] (it "
        "has _orig_mod.block.weight: --strip-prefix leaves out what stands before the names)");
}

// ---- shared weights -----------------------------------------------------------------------------

// encoder.weight [2, 3] and decoder.weight are one parameter.
static Module *make_tied(Device *device) {
    Module *root = module_create("Tied", NULL);
    Module *encoder = module_add(root, "encoder", module_create("Part", NULL));
    Module *decoder = module_add(root, "decoder", module_create("Part", NULL));
    module_add_parameter(encoder, device, "weight", 2, (size_t[]){2, 3});
    module_add_parameter(decoder, device, "weight", 2, (size_t[]){2, 3});
    module_tie_parameter(decoder, "weight", encoder, "weight");
    return root;
}

// Loads these entries into a fresh tied module. NULL: its values are `first`'s; else the error.
static void check_tied(void **state, SafeEntry *entries, size_t count, const char *message) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    Module *module = make_tied(device);
    char *path = temp_folder_path(state, "tied.safetensors");
    SafeTensors content = {.entries = entries, .count = count};
    assert_int_equal(safetensors_write(path, &content, &err), 0);
    int status = safetensors_load_module(path, module, &err);
    assert_int_equal(status, message ? -1 : 0);
    if (message) assert_non_null(strstr(err.message, message));
    float *data = module_parameter(module_child(module, "encoder"), 0)->data;
    const float zeros[6] = {0};
    assert_memory_equal(data, message ? zeros : entries[0].data, sizeof zeros);
    // And back: every name is in the file.
    assert_int_equal(safetensors_save_module(path, module, NULL, 0, &err), 0);
    assert_int_equal(safetensors_read(path, &content, &err), 0);
    assert_int_equal(content.count, 2);
    assert_string_equal(content.entries[0].name, "encoder.weight");
    assert_string_equal(content.entries[1].name, "decoder.weight");
    for (int i = 0; i < 2; i++) assert_memory_equal(content.entries[i].data, data, sizeof zeros);
    safetensors_free(&content);
    module_close(module);
    device_close(device);
    free(path);
}

static void test_shared_weights(void **state) {
    const float first[6] = {1, 2, 3, 4, 5, 6}, second[6] = {1, 2, 3, 4, 5, 7};
    const size_t shape[] = {2, 3}, turned[] = {3, 2};
    SafeEntry encoder = make_entry("encoder.weight", DTYPE_F32, 2, shape, first);
    SafeEntry decoder = make_entry("decoder.weight", DTYPE_F32, 2, shape, first);
    SafeEntry other = make_entry("decoder.weight", DTYPE_F32, 2, shape, second);
    SafeEntry flat = make_entry("decoder.weight", DTYPE_F32, 2, turned, first);
    check_tied(state, (SafeEntry[]){encoder, decoder}, 2, NULL);
    check_tied(state, (SafeEntry[]){encoder}, 1, NULL); // as files before had it
    check_tied(state, (SafeEntry[]){decoder}, 1, NULL); // as safetensors.torch.save_model
    check_tied(state, (SafeEntry[]){encoder, other}, 2,
               "encoder.weight and decoder.weight differ in the file");
    check_tied(state, (SafeEntry[]){encoder, flat}, 2,
               "decoder.weight is F32 [3, 2] in the file and F32 [2, 3] in this model");
    check_tied(state, NULL, 0, "there is no encoder.weight in the file");
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_round_trip),       IN_FOLDER(test_layout_of_the_file),
        IN_FOLDER(test_nothing_to_write), IN_FOLDER(test_hostile_headers),
        IN_FOLDER(test_deep_nesting),     IN_FOLDER(test_sizes_of_the_file),
        IN_FOLDER(test_every_truncation), IN_FOLDER(test_module_round_trip),
        IN_FOLDER(test_module_grads),     IN_FOLDER(test_module_is_strict),
        IN_FOLDER(test_shared_weights),   IN_FOLDER(test_costly_headers),
        IN_FOLDER(test_many_tensors),     IN_FOLDER(test_foreign_weights),
        IN_FOLDER(test_wrapped_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
