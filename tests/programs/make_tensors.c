/* make_tensors.c: writes the files that compare_tensors.sh compares: make_tensors FOLDER.
 *
 * base has w [2, 3], b [2] and step [3]; each other file is base with one change. many and
 * many_reversed have the maximum number of tensors, all empty.
 */
#include <math.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/tensor_files/safetensors.h"

typedef struct Content {
    float w[6], b[2];
    int64_t step[3];
    size_t rows;  // of w: 2, or 3: another shape with the same number of elements
    size_t count; // number of tensors: w, b, step; 4: an extra one
} Content;

static Content base(void) {
    return (Content){.w = {1, -2, 0.5f, 0, 100, -0.25f},
                     .b = {0, 7},
                     .step = {12, 40, -7},
                     .rows = 2,
                     .count = 3};
}

static void save(const char *folder, const char *name, const Content *c) {
    char *path = memory_format("%s/%s", folder, name);
    SafeEntry entries[] = {
        {"w", DTYPE_F32, 2, {c->rows, 6 / c->rows}, c->w, sizeof c->w},
        {"b", DTYPE_F32, 1, {2}, c->b, sizeof c->b},
        {"step", DTYPE_I64, 1, {3}, c->step, sizeof c->step},
        {"extra, \"quoted\"", DTYPE_F32, 1, {0}, c->w, 0},
    };
    SafeTensors content = {.entries = entries, .count = c->count};
    Error err = {0};
    if (safetensors_write(path, &content, &err) != 0) error_exit(&err);
    free(path);
}

// The names have long common prefixes, as those of a network's layers.
static void save_many(const char *folder, const char *name, bool reversed) {
    char *path = memory_format("%s/%s", folder, name);
    SafeTensors content = {.count = SAFE_TENSORS_MAX};
    content.entries = memory_zalloc(content.count * sizeof *content.entries);
    for (size_t i = 0; i < content.count; i++) {
        size_t number = reversed ? content.count - 1 - i : i;
        content.entries[i] = (SafeEntry){.dtype = DTYPE_F32, .ndim = 1, .data = ""};
        snprintf(content.entries[i].name, sizeof content.entries[i].name, "%0100d.%zu", 0, number);
    }
    Error err = {0};
    if (safetensors_write(path, &content, &err) != 0) error_exit(&err);
    free(content.entries);
    free(path);
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: make_tensors FOLDER");
    const char *folder = argv[1];
    Content c = base();
    save(folder, "base", &c);
    c.w[4] = nextafterf(100, 101);
    save(folder, "one_ulp", &c);
    c.w[4] = 100.01f;
    save(folder, "far", &c);
    c = base(), c.b[0] = -0.0f;
    save(folder, "minus_zero", &c);
    c = base(), c.b[1] = 0;
    save(folder, "zeros", &c);
    c = base(), c.w[5] = NAN;
    save(folder, "nan", &c);
    c = base(), c.w[5] = INFINITY;
    save(folder, "infinite", &c);
    c = base(), c.step[0] = 13, c.step[2] = -9;
    save(folder, "step", &c);
    c = base(), c.rows = 3;
    save(folder, "shape", &c);
    c = base(), c.count = 2;
    save(folder, "fewer", &c);
    c = base(), c.count = 4;
    save(folder, "more", &c);
    save_many(folder, "many", false);
    save_many(folder, "many_reversed", true);
    return 0;
}
