/* test_safetensors.c: written files read back equal; a module is loaded completely or not at all.
 * (Refused files: test_hostile_files.c.)
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
#include "tests/rigs/failed_check.h"
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
    back.count = 2; // entries behind the count must not be found
    back.meta_count = 2;
    assert_null(safetensors_find(&back, back.entries[2].name));
    assert_null(safetensors_meta(&back, back.meta[2].key));
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
    assert_memory_equal(bytes + 8 + header, &n, 8); // 8-byte elements come first
    assert_memory_equal(bytes + 8 + header + 8, &x, 4);
    char digits[SAFE_DIGITS + 1] = "xxxxxxxx";
    digits[SAFE_DIGITS] = 'x'; // without a NUL
    safetensors_checksum(&(SafeTensors){.entries = entries, .count = 2}, digits);
    assert_memory_equal(safetensors_find_digits((char *)bytes + 8, header), digits,
                        sizeof digits - 1);
    assert_int_equal(strlen(digits), SAFE_DIGITS);
    free(path);
}

// Headers of every length are padded to the next multiple of 8.
static void test_padding(void **state) {
    const float x = 1;
    char *path = temp_folder_path(state, "padded.safetensors"), name[] = "123456789";
    for (int i = 1; i < 9; i++) {
        SafeEntry entry = make_entry(name + i, DTYPE_F32, 0, NULL, &x);
        SafeTensors content = {.entries = &entry, .count = 1};
        assert_int_equal(safetensors_write(path, &content, NULL), 0);
        char bytes[1024] = "";
        FILE *file = fopen(path, "rb");
        size_t header = fread(bytes, 1, sizeof bytes, file) - 8 - sizeof x;
        fclose(file);
        assert_int_equal(header % 8, 0);
        size_t spaces = 0;
        while (bytes[8 + header - 1 - spaces] == ' ') spaces++;
        assert_in_range(spaces, 0, 7);
    }
    free(path);
}

typedef struct Mistake {
    SafeTensors content;
    const char *path;
} Mistake;

static void write_mistake(void *context) {
    Mistake *mistake = context;
    safetensors_write(mistake->path, &mistake->content, NULL);
}

static void test_callers_mistakes(void **state) {
    const float x[2] = {1, 2};
    char *path = temp_folder_path(state, "wrong.safetensors");
    SafeEntry a = make_entry("a", DTYPE_F32, 1, (size_t[]){2}, x), b = a, short_one = a;
    SafeEntry reserved = make_entry("__metadata__", DTYPE_F32, 0, NULL, x);
    snprintf(b.name, sizeof b.name, "b");
    short_one.bytes = 4;
    SafeMeta crc = {"crc32", "00000000"};
    const struct {
        SafeEntry entries[3];
        const char *says;
    } cases[] = {
        {{short_one}, "tensor a has 4 bytes, its shape says 8"},
        {{b, a, b}, "two tensors are called b"},
        {{a, a, b}, "two tensors are called a"},
        {{b, reserved, a}, "tensor 1 has a reserved name"},
        {{a}, "the checksum is not the caller's to give"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Mistake mistake = {.path = path};
        mistake.content.entries = (SafeEntry *)cases[i].entries;
        while (mistake.content.count < 3 && cases[i].entries[mistake.content.count].bytes > 0)
            mistake.content.count++;
        if (i == 4) {
            mistake.content.meta = &crc;
            mistake.content.meta_count = 1;
        }
        expect_failed_check(write_mistake, &mistake, cases[i].says);
        assert_int_not_equal(access(path, F_OK), 0);
    }
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
    content.count++; // beyond the maximum: not written
    assert_int_equal(safetensors_write(path, &content, &err), -1);
    assert_non_null(strstr(err.message, "65537 tensors"));
    assert_int_equal(safetensors_read_header(path, &back, NULL), 0); // the old file is unchanged
    assert_int_equal(back.count, SAFE_TENSORS_MAX);
    safetensors_free(&back);
    free(entries);
    free(path);
}

// Every proper prefix of a valid file is refused.
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

// A module with block.weight [2, 3], block.bias [2] and the buffer block.steps (I64 scalar), filled
// with consecutive values from `first`.
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

// Copies of memory that the host cannot address are freed after each save.
static void test_far_memory_is_given_back(void **state) {
    enum { FLOATS = 1 << 18 };
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    Module *module = module_create("Root", NULL);
    module_add_parameter(module, device, "weight", 1, (size_t[]){FLOATS});
    char *path = temp_folder_path(state, "far.safetensors");
    const Kernels *const own = device->kernels;
    Kernels far = *own;
    far.is_addressable = false;
    device->kernels = &far;
    size_t before = 0;
    for (int save = 0; save < 3; save++) {
        assert_int_equal(safetensors_save_module(path, module, NULL, 0, &err), 0);
        const struct mallinfo2 heap = mallinfo2();
        if (save == 0) before = heap.uordblks + heap.hblkhd;
        assert_in_range(heap.uordblks + heap.hblkhd, 0, before + FLOATS);
    }
    device->kernels = own;
    module_close(module);
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
    assert_int_equal(content.count, 1); // the weight's gradient is undefined
    assert_memory_equal(safetensors_find(&content, "block.bias")->data, grad, sizeof grad);
    safetensors_free(&content);
    named_tensors_free(&parameters);
    module_close(module);
    device_close(device);
    free(path);
}

// Loading `entries` into a new module fails with `message` and changes nothing.
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
    SafeEntry first = make_entry("block.first", DTYPE_I64, 0, NULL, &step); // a further entry
    assert_not_loaded(
        state, (SafeEntry[]){first, weight, bias, steps}, 4,
        "holds another model: there is block.first [] in the file, and none in this model");
}

// Names from a state_dict of the wrappers DataParallel and DistributedDataParallel, and of
// torch.compile.
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
    // Names with the same ending only.
    SafeEntry joined = make_entry("my_block.weight", DTYPE_F32, 2, (size_t[]){2, 3}, values);
    SafeEntry nameless = make_entry(".block.weight", DTYPE_F32, 2, (size_t[]){2, 3}, values);
    SafeEntry others[] = {joined, nameless};
    for (int i = 0; i < 2; i++)
        assert_not_loaded(state, (SafeEntry[]){bias, others[i]}, 2,
                          "holds another model: there is no block.weight in the file, in this "
                          "model it is [2, 3]");
    assert_not_loaded(
        state, (SafeEntry[]){bias, compiled}, 2,
        "holds another model: there is no block.weight in the file, in this model it is [2, 3] (it "
        "has _orig_mod.block.weight: --strip-prefix leaves out what stands before the names)");
}

// Entries behind the count are neither named nor refused.
static void test_entries_behind_the_count(void **state) {
    (void)state;
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const int64_t step = 9;
    const SafeEntry weight = make_entry("block.weight", DTYPE_F32, 2, (size_t[]){2, 3}, values);
    const SafeEntry bias = make_entry("block.bias", DTYPE_F32, 1, (size_t[]){2}, values);
    const SafeEntry steps = make_entry("block.steps", DTYPE_I64, 0, NULL, &step);
    const SafeEntry other = make_entry("m.block.weight", DTYPE_F32, 0, NULL, values);
    SafeEntry complete[] = {weight, bias, steps, other}, lacking[] = {bias, steps, other};
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    Module *module = make_module(device, 50);
    SafeTensors content = {.entries = complete, .count = 3};
    assert_int_equal(safetensors_check_module(&content, "a", module, &err), 0);
    content = (SafeTensors){.entries = lacking, .count = 2};
    assert_int_equal(safetensors_check_module(&content, "a", module, &err), -1);
    assert_string_equal(err.message, "a: holds another model: there is no block.weight in the "
                                     "file, in this model it is [2, 3]");
    module_close(module);
    device_close(device);
    // GPT-2's layout is decided by the first block, which must be among the entries.
    const float many[12] = {0};
    const SafeEntry in_out =
        make_entry("h.0.attn.c_attn.weight", DTYPE_F32, 2, (size_t[]){2, 6}, many);
    const SafeEntry out_in =
        make_entry("h.1.attn.c_attn.weight", DTYPE_F32, 2, (size_t[]){6, 2}, many);
    SafeEntry none[] = {bias, in_out}, one[] = {in_out, out_in};
    content = (SafeTensors){.entries = none, .count = 1};
    assert_int_equal(safetensors_convert_gpt2(&content, "a", &err), 0);
    assert_string_equal(none[0].name, "block.bias");
    content = (SafeTensors){.entries = one, .count = 1};
    assert_int_equal(safetensors_convert_gpt2(&content, "a", &err), 0);
    assert_int_equal(content.count, 1);
    assert_string_equal(one[0].name, "transformer.h.0.attn.c_attn.weight");
    assert_string_equal(one[1].name, "h.1.attn.c_attn.weight");
}

// ---- shared weights -----------------------------------------------------------------------------

// encoder.weight [2, 3] and decoder.weight share one parameter.
static Module *make_tied(Device *device) {
    Module *root = module_create("Tied", NULL);
    Module *encoder = module_add(root, "encoder", module_create("Part", NULL));
    Module *decoder = module_add(root, "decoder", module_create("Part", NULL));
    module_add_parameter(encoder, device, "weight", 2, (size_t[]){2, 3});
    module_add_parameter(decoder, device, "weight", 2, (size_t[]){2, 3});
    module_tie_parameter(decoder, "weight", encoder, "weight");
    return root;
}

// Loads the entries into a new tied module: its values are those of the first entry if message is
// NULL; otherwise loading fails with `message`.
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
    // Saving writes both names.
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
    check_tied(state, (SafeEntry[]){encoder}, 1, NULL); // older files have only the owner's name
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
        IN_FOLDER(test_round_trip),
        IN_FOLDER(test_layout_of_the_file),
        IN_FOLDER(test_nothing_to_write),
        IN_FOLDER(test_padding),
        IN_FOLDER(test_callers_mistakes),
        IN_FOLDER(test_every_truncation),
        IN_FOLDER(test_module_round_trip),
        IN_FOLDER(test_module_grads),
        IN_FOLDER(test_module_is_strict),
        IN_FOLDER(test_shared_weights),
        IN_FOLDER(test_many_tensors),
        IN_FOLDER(test_wrapped_names),
        cmocka_unit_test(test_entries_behind_the_count),
        IN_FOLDER(test_far_memory_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
