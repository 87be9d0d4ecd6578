/* test_gpt2_files.c: GPT-2's files as written by Hugging Face's transformers, made by
 * tests/parity/make_gpt2.py. All three load, and the logits are those of transformers. A file that
 * mixes layouts or names is refused.
 */
#include "tests/rigs/check.h"

#include "common/nn/layers.h"
#include "common/nn/models.h"
#include "common/nn/tape.h"
#include "common/tensor_files/safetensors.h"
#include "tests/rigs/temp_folder.h"

// The largest logit is 2.4. Another order of additions changes them by less than 2e-6, as in
// PyTorch itself; a transposed attn.c_proj.weight changes them by 0.1 or more.
static const double TOLERANCE = 1e-5;

static void read_file(const char *name, SafeTensors *file) {
    Error err = {0};
    char path[256];
    snprintf(path, sizeof path, FIXTURE_DIR "/%s.safetensors", name);
    CHECK_OK(safetensors_read(path, file, &err) == 0, err);
}

static Module *create(Device *device) {
    Error err = {0};
    const ModelConfig config = {.name = "gpt", .outputs = 13, .gpt = {2, 2, 8, 10}};
    Module *model = model_create(&config, device, &err);
    CHECK_OK(model, err);
    return model;
}

// The mean cross-entropy of all tokens of a text but the last, with the following token as target,
// as in transformers.
static double mean_loss(const float *logits, const SafeEntry *tokens, size_t classes) {
    const int64_t *token = tokens->data;
    size_t texts = tokens->shape[0], length = tokens->shape[1];
    double sum = 0;
    for (size_t row = 0; row < texts * length; row++) {
        if (row % length == length - 1) continue;
        const float *x = logits + row * classes;
        double total = 0;
        for (size_t c = 0; c < classes; c++) total += exp((double)x[c]);
        sum += log(total) - (double)x[token[row + 1]];
    }
    return sum / (double)(texts * (length - 1));
}

static void check_answers(Module *model, const char *name) {
    Error err = {0};
    SafeTensors answers;
    read_file("gpt2_answers", &answers);
    const SafeEntry *tokens = safetensors_find(&answers, "tokens");
    const SafeEntry *logits = safetensors_find(&answers, "logits");
    const float *loss = safetensors_find(&answers, "loss")->data;
    NamedTensors list = module_tensors(model, MODULE_PARAMETERS);
    Tape *tape = tape_create(list.items[0].tensor->device, NULL);
    named_tensors_free(&list);
    Tensor *x = tape_input(tape, DTYPE_I64, 2, tokens->shape, tokens->data);
    Tensor *y = module_forward(model, tape, x);
    CHECK_OK(tape_error(tape, &err) == 0, err);
    assert_int_equal(logits->bytes, tensor_bytes(y));
    float *ours = memory_zalloc(logits->bytes);
    const float *theirs = logits->data;
    tensor_to_host(y, ours);
    for (size_t i = 0; i < logits->bytes / sizeof *ours; i++)
        if (!(fabs((double)ours[i] - (double)theirs[i]) <= TOLERANCE))
            fail_msg("%s: logit %zu is %.9g, transformers has %.9g", name, i, (double)ours[i],
                     (double)theirs[i]);
    assert_true(fabs(mean_loss(ours, tokens, y->shape[1]) - (double)*loss) <= TOLERANCE);
    free(ours);
    tape_close(tape);
    safetensors_free(&answers);
}

static void files_of_transformers_load(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    const char *const names[] = {"gpt2_lm", "gpt2_bare", "gpt2_older"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, FIXTURE_DIR "/%s.safetensors", names[i]);
        Module *model = create(device);
        module_initialize(model, i + 1);
        CHECK_OK(safetensors_load_module(path, model, &err) == 0, err);
        check_answers(model, names[i]);
        module_close(model);
    }
    device_close(device);
}

// ---- files that are not GPT-2's, or only in part ------------------------------------------------

static SafeEntry *entry_of(SafeTensors *content, const char *name) {
    return (SafeEntry *)safetensors_find(content, name);
}

// Writes the content, frees it, and loads the file. Returns whether it is refused with these words.
static bool is_refused(void **state, SafeTensors *content, const char *words) {
    Error err = {0};
    char *path = temp_folder_path(state, "changed");
    CHECK_OK(safetensors_write(path, content, &err) == 0, err);
    Device *device = device_open("cpu:0", &err);
    Module *model = create(device);
    bool refused = safetensors_load_module(path, model, &err) != 0 && strstr(err.message, words) &&
                   strstr(err.message, path);
    if (!refused) print_error("instead of '%s': %s\n", words, err.message);
    module_close(model);
    device_close(device);
    safetensors_free(content);
    free(path);
    return refused;
}

static void mixtures_are_refused(void **state) {
    SafeTensors content;
    read_file("gpt2_bare", &content);
    SafeEntry *entry = entry_of(&content, "h.1.attn.c_attn.weight");
    entry->shape[0] = 24, entry->shape[1] = 8;
    assert_true(is_refused(state, &content, "h.1.attn.c_attn.weight is no Conv1D weight"));
    read_file("gpt2_bare", &content);
    strcpy(entry_of(&content, "ln_f.bias")->name, "transformer.ln_f.bias");
    assert_true(is_refused(state, &content, "and transformer.ln_f.bias does:"));
    read_file("gpt2_lm", &content);
    strcpy(entry_of(&content, "transformer.ln_f.bias")->name, "ln_f.bias");
    assert_true(is_refused(state, &content, "and ln_f.bias does not:"));
    read_file("gpt2_lm", &content);
    strcpy(entry_of(&content, "transformer.ln_f.bias")->name, "transformer.ln_f.scale");
    assert_true(is_refused(state, &content, "there is no transformer.ln_f.bias in the file"));
    read_file("gpt2_bare",
              &content); // the error names the first tensor in the file
    entry = &content.entries[0];
    memmove(entry->name + strlen("transformer."), entry->name, strlen(entry->name) + 1);
    memcpy(entry->name, "transformer.", strlen("transformer."));
    assert_true(
        is_refused(state, &content, "some names begin with \"transformer.\" and transformer."));
}

// Only a block's tensors with GPT-2's names and shapes are converted.
static void what_only_looks_alike_is_left_alone(void **state) {
    static const struct {
        const char *name, *other;
        size_t columns; // of the shape [ROWS, columns]; 0: only [8]
        const char *says;
    } cases[] = {
        {"h.0.ln_1.bias", "h.0_attn.bias", 0, "there is no transformer.h.0.ln_1.bias in the file"},
        {"h.0.ln_1.bias", "h.0.attn.bias2", 0, "there is no transformer.h.0.ln_1.bias in the file"},
        {"h.0.ln_1.bias", "h..attn.bias", 0, "there is no transformer.h.0.ln_1.bias in the file"},
        {"h.0.attn.c_proj.weight", NULL, 0, "h.0.attn.c_proj.weight is F32 [64] in the file"},
        {"h.0.mlp.c_fc.weight", NULL, 16, "h.0.mlp.c_fc.weight is F32 [16, 16] in the file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SafeTensors content;
        read_file("gpt2_bare", &content);
        SafeEntry *entry = entry_of(&content, cases[i].name);
        if (cases[i].other) {
            snprintf(entry->name, sizeof entry->name, "%s", cases[i].other);
        } else {
            const size_t count = entry->bytes / sizeof(float), columns = cases[i].columns;
            entry->ndim = columns ? 2 : 1;
            entry->shape[0] = columns ? count / columns : count;
            entry->shape[1] = columns;
        }
        assert_true(is_refused(state, &content, cases[i].says));
    }
}

// Our own checkpoints have Linear's layout and are not converted.
static void our_own_file_is_not_converted(void **state) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    Module *model = create(device), *back = create(device);
    char *path = temp_folder_path(state, "own");
    CHECK_OK(safetensors_load_module(FIXTURE_DIR "/gpt2_lm.safetensors", model, &err) == 0, err);
    CHECK_OK(safetensors_save_module(path, model, NULL, 0, &err) == 0, err);
    CHECK_OK(safetensors_load_module(path, back, &err) == 0, err);
    check_answers(back, "saved again");
    module_close(model);
    module_close(back);
    device_close(device);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_transformers_load),
        cmocka_unit_test_setup_teardown(what_only_looks_alike_is_left_alone, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(mixtures_are_refused, temp_folder_make, temp_folder_remove),
        cmocka_unit_test_setup_teardown(our_own_file_is_not_converted, temp_folder_make,
                                        temp_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
