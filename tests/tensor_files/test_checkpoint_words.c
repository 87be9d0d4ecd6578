/* test_checkpoint_words.c: valid and invalid metadata of a checkpoint's two files, contents of the
 * second file, and the places where it is searched.
 */
#include "tests/rigs/checkpoint_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/device/device_backend.h"
#include "tests/rigs/files.h"
#include "tests/rigs/temp_folder.h"

// Rewrites a file of tensors with a new checksum.
static void write_again(const char *path, SafeTensors *file) {
    Error err = {0};
    size_t kept = 0;
    for (size_t i = 0; i < file->meta_count; i++)
        if (strcmp(file->meta[i].key, "crc32") != 0) file->meta[kept++] = file->meta[i];
    assert_int_equal(kept + 1, file->meta_count);
    file->meta_count = kept;
    CHECK_OK(safetensors_write(path, file, &err) == 0, err);
    safetensors_free(file);
}

static SafeTensors read_file(const char *path) {
    Error err = {0};
    SafeTensors file;
    CHECK_OK(safetensors_read(path, &file, &err) == 0, err);
    return file;
}

// Replaces the metadata's value of `key`, or removes it if text is NULL.
static void say(const char *path, const char *key, const char *text) {
    SafeTensors file = read_file(path);
    size_t at = 0;
    while (strcmp(file.meta[at].key, key) != 0) at++;
    assert_true(at < file.meta_count);
    if (text)
        snprintf(file.meta[at].value, sizeof file.meta[at].value, "%s", text);
    else
        file.meta[at] = file.meta[--file.meta_count];
    write_again(path, &file);
}

static void test_metadata(void **state) {
    static const struct {
        const char *key, *text, *says; // says: the error; NULL: the checkpoint is valid
    } cases[] = {
        {"best", NULL, "the metadata lacks \"best\""},
        {"best", "", "\"best\" is not a number: "},
        {"best", "nan", "\"best\" is not a number: nan"},
        {"best", "0x1p2x", "\"best\" is not a number: 0x1p2x"},
        {"best", "-inf", NULL},
        {"seed", "", "\"seed\" is not a number: "},
        {"seed", "-1", "\"seed\" is not a number: -1"},
        {"seed", "12x", "\"seed\" is not a number: 12x"},
        {"seed", "18446744073709551616", "\"seed\" is not a number: 18446744073709551616"},
        {"seed", "18446744073709551615", NULL},
        {"step", NULL, "the metadata lacks \"step\""},
        {"devices", NULL, "the metadata lacks \"devices\""},
        {"scale", NULL, "the metadata lacks \"scale\""},
        {"scale", "big", "\"scale\" is not a number: big"},
        {"growth_tracker", NULL, "the metadata lacks \"growth_tracker\""},
        {"growth_tracker", "0.5", "\"growth_tracker\" is not a number: 0.5"},
        {"lr", NULL, NULL},
        {"text", NULL, NULL},
        {"checkpoint", NULL, "is no checkpoint to resume from"},
        {"checkpoint", "ddp.c checkpoint 2", "is no checkpoint to resume from"},
        {"optimizer_file", NULL, "names no optimizer file beside it, or lacks a checksum"},
        {"optimizer_file", "", "names no optimizer file beside it, or lacks a checksum"},
        {"optimizer_file", "there/it.is", "names no optimizer file beside it, or lacks a checksum"},
        {"optimizer_file", "none", "none: No such file"},
        {"optimizer_crc32", NULL, "names no optimizer file beside it, or lacks a checksum"},
        {"optimizer_crc32", "0000000g", ", not 0000000g"},
    };
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *path = temp_folder_path(state, "last.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        Progress progress;
        CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
        say(path, cases[i].key, cases[i].text);
        CheckpointState wanted = !cases[i].says                            ? CHECKPOINT_WHOLE
                                 : strcmp(cases[i].key, "checkpoint") == 0 ? CHECKPOINT_OTHER
                                                                           : CHECKPOINT_DAMAGED;
        assert_int_equal(checkpoint_check(path, &progress, &err), wanted);
        check_message(&err, cases[i].says ? cases[i].says : "");
        if (cases[i].says) assert_refused(&rig, path, cases[i].says);
    }
    rig_close(&rig);
    free(path);
}

// Checkpoints from before --amp lack its setting; older ones lack all settings that a run may
// change.
static void test_older_ones(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *path = temp_folder_path(state, "last.safetensors");
    CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
    static const char *const keys[] = {"amp", "scale", "growth_tracker", "schedule"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) say(path, keys[i], NULL);
    Progress progress;
    assert_int_equal(checkpoint_check(path, &progress, &err), CHECKPOINT_WHOLE);
    assert_string_equal(progress.amp, "none");
    assert_true(progress.step == 40 && progress.scale == 0 && progress.growth_tracker == 0);
    assert_string_equal(progress.notes[NOTE_SCHEDULE], "");
    assert_string_equal(progress.notes[NOTE_MOMENTUM], "a momentum");
    rig_close(&rig);
    free(path);
}

// ---- the second file --------------------------------------------------------------------------

static SafeEntry *entry_named(SafeTensors *file, const char *name) {
    size_t i = 0;
    while (strcmp(file->entries[i].name, name) != 0) i++;
    assert_true(i < file->count);
    return &file->entries[i];
}

static void rename_one(SafeTensors *file) {
    strcpy(entry_named(file, "bias.momentum_buffer")->name, "bias.momentum");
}

static void shorten_one(SafeTensors *file) {
    SafeEntry *entry = entry_named(file, "bias.momentum_buffer");
    entry->shape[0]--;
    entry->bytes -= sizeof(float);
}

static void retype_one(SafeTensors *file) { // to a type of the same size
    SafeEntry *entry = entry_named(file, "bias.momentum_buffer");
    entry->dtype = DTYPE_I64;
    entry->shape[0] = 3;
}

static void drop_one(SafeTensors *file) {
    *entry_named(file, "weight.step") = file->entries[--file->count];
}

static void keep_one(SafeTensors *file) {
    file->entries[0] = *entry_named(file, "weight.step");
    file->count = 1;
}

static void forget_kind(SafeTensors *file) {
    size_t at = 0;
    while (strcmp(file->meta[at].key, "optimizer") != 0) at++;
    file->meta[at] = file->meta[--file->meta_count];
}

static void test_optimizer_file(void **state) {
    static const struct {
        void (*change)(SafeTensors *file);
        const char *says;
    } cases[] = {
        {rename_one, ".optimizer: tensor bias.momentum_buffer is missing or differs in size"},
        {shorten_one, ".optimizer: tensor bias.momentum_buffer is missing or differs in size"},
        {retype_one, ".optimizer: tensor bias.momentum_buffer is missing or differs in size"},
        {drop_one, ".optimizer: holds 3 tensors, the optimizer has 4"},
        {keep_one, ".optimizer: holds 1 tensor, the optimizer has 4"},
        {forget_kind, ".optimizer: was written by optimizer (none), this run uses sgd"},
    };
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9), plain = rig_open(OPTIMIZER_SGD, 0);
    char *path = temp_folder_path(state, "last.safetensors");
    Error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
        char *optimizer = find_file(*state, ".optimizer");
        SafeTensors file = read_file(optimizer);
        cases[i].change(&file);
        write_again(optimizer, &file);
        file = read_file(optimizer);
        say(path, "optimizer_crc32", safetensors_meta(&file, "crc32")); // the checksums match
        safetensors_free(&file);
        assert_refused(&rig, path, cases[i].says);
        free(optimizer);
    }
    // Weights of another model, with a matching optimizer file.
    CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
    SafeTensors weights = read_file(path);
    strcpy(entry_named(&weights, "bias")->name, "bias2");
    write_again(path, &weights);
    assert_refused(&rig, path, "holds another model: there is no bias in the file");
    CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
    assert_refused(&plain, path, "holds 4 tensors, the optimizer has 2");
    CHECK_OK(rig_save(&plain, 40, path, NULL, &err) == 0, err);
    assert_refused(&rig, path, "holds 2 tensors, the optimizer has 4");
    rig_close(&plain);
    rig_close(&rig);
    free(path);
}

static size_t copies; // device to host

static void count_copy(Device *to, void *destination, Device *from, const void *source,
                       size_t bytes) {
    copies += !to && from;
    memcpy(destination, source, bytes);
}

// Memory that the host cannot address is copied to the host: two weights and their four moments.
// Addressable memory is written directly.
static void test_far_memory(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_ADAMW, 0);
    char *path = temp_folder_path(state, "last.safetensors");
    const Kernels *own_kernels = rig.device->kernels;
    const DeviceBackend *own_backend = rig.device->backend;
    Kernels kernels = *own_kernels;
    DeviceBackend backend = *own_backend;
    backend.copy = count_copy;
    rig.device->kernels = &kernels;
    rig.device->backend = &backend;
    for (int far = 0; far < 2; far++) {
        kernels.is_addressable = !far;
        copies = 0;
        CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
        assert_int_equal(copies, far ? 6 : 0);
        assert_int_equal(rig_load(&rig, path), 40);
    }
    rig.device->kernels = own_kernels;
    rig.device->backend = own_backend;
    rig_close(&rig);
    free(path);
}

// Files of two checkpoints are distinguished by checksum; the error contains both checksums.
static void test_checksums(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *path = temp_folder_path(state, "last.safetensors"), digits[SAFE_DIGITS + 1];
    CHECK_OK(rig_save(&rig, 40, path, NULL, &err) == 0, err);
    char *optimizer = find_file(*state, ".optimizer");
    SafeTensors file = read_file(path);
    assert_string_equal(safetensors_meta(&file, "format"), "pt");
    snprintf(digits, sizeof digits, "%s", safetensors_meta(&file, "optimizer_crc32"));
    Progress progress; // FILE's checksum identifies the pair
    assert_int_equal(checkpoint_check(path, &progress, &err), CHECKPOINT_WHOLE);
    char sum[SAFE_DIGITS + 1];
    snprintf(sum, sizeof sum, "%08x", (unsigned)progress.checksum);
    assert_string_equal(sum, safetensors_meta(&file, "crc32"));
    safetensors_free(&file);
    file = read_file(optimizer);
    drop_one(&file);
    write_again(optimizer, &file);
    file = read_file(optimizer);
    char *says =
        memory_format("its checksum is %s, not %s", safetensors_meta(&file, "crc32"), digits);
    safetensors_free(&file);
    assert_refused(&rig, path, says);
    free(says);
    size_t bytes; // without a checksum, as from other writers
    char *data = read_whole(optimizer, &bytes), *key = memmem(data, bytes, "crc32", 5);
    assert_non_null(key);
    key[4] = '3';
    write_whole(optimizer, data, bytes);
    says = memory_format("its checksum is missing, not %s", digits);
    assert_refused(&rig, path, says);
    free(says);
    free(data);
    free(optimizer);
    rig_close(&rig);
    free(path);
}

// A save to a symbolic link writes the pair beside the link's target and keeps no previous
// checkpoint. A load finds the second file there, or beside the link.
static void test_symbolic_link(void **state) {
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    char *link = temp_folder_path(state, "last.safetensors");
    char *previous = temp_folder_path(state, "previous.safetensors");
    char *folder = temp_folder_path(state, "there"), *target = memory_format("%s/it", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(symlink("there/it", link), 0);
    for (uint64_t step = 7; step <= 8; step++) {
        CHECK_OK(rig_save(&rig, step, link, previous, &err) == 0, err);
        assert_int_equal(rig_load(&rig, link), step);
        assert_int_equal(rig_load(&rig, target), step);
        assert_int_equal(count_files(folder, ""), 2);
    }
    assert_int_not_equal(access(previous, F_OK), 0);
    char *optimizer = find_file(folder, ".optimizer"); // will be moved beside the link
    char *moved = temp_folder_path(state, strrchr(optimizer, '/') + 1);
    assert_int_equal(rename(optimizer, moved), 0);
    assert_int_equal(rig_load(&rig, link), 8);
    assert_refused(&rig, target, "No such file");
    assert_int_equal(unlink(moved), 0);
    checkpoint_remove(target);
    assert_int_equal(rmdir(folder), 0);
    rig_close(&rig);
    free(moved);
    free(optimizer);
    free(target);
    free(folder);
    free(previous);
    free(link);
}

// Among checkpoints with the same, highest step every rank chooses the first by name.
static void test_equal_steps(void **state) {
    static const char *const names[] = {"c.safetensors", "a.safetensors", "b.safetensors",
                                        ".safetensors"};
    const uint64_t steps[] = {5, 4, 5, 9}; // the last file's name is only ".safetensors"
    Error err = {0};
    Rig rig = rig_open(OPTIMIZER_SGD, 0.9);
    for (int i = 0; i < 4; i++) {
        char *path = temp_folder_path(state, names[i]);
        CHECK_OK(rig_save(&rig, steps[i], path, NULL, &err) == 0, err);
        free(path);
    }
    char *found, *wanted = temp_folder_path(state, "b.safetensors");
    CHECK_OK(checkpoint_find(*state, &found, NULL, &err) == 0, err);
    assert_string_equal(found, wanted);
    free(found);
    assert_int_equal(truncate(wanted, 9), 0); // without a RunLog: not reported
    CHECK_OK(checkpoint_find(*state, &found, NULL, &err) == 0, err);
    assert_string_equal(strrchr(found, '/'), "/c.safetensors");
    free(found);
    assert_int_equal(checkpoint_find(wanted, &found, NULL, &err), -1);
    check_message(&err, "b.safetensors: Not a directory");
    assert_null(found);
    free(wanted);
    rig_close(&rig);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_metadata),    IN_FOLDER(test_older_ones), IN_FOLDER(test_optimizer_file),
        IN_FOLDER(test_far_memory),  IN_FOLDER(test_checksums),  IN_FOLDER(test_symbolic_link),
        IN_FOLDER(test_equal_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
