/* fuzz_specs.c: option values that have a syntax: "synthetic:3x32x32->10@2048" and --hidden. */
#include "common/data/synthetic.h"
#include "common/nn/models.h"
#include "tests/fuzz/fuzz.h"

static void check_spec(const DataSpec *spec, size_t inputs) {
    size_t floats;
    CHECK(inputs == spec->side[0] * spec->side[1] * spec->side[2], "%zu", inputs);
    CHECK(inputs > 0 && spec->outputs > 0 && spec->count > 0, "a size of 0");
    CHECK(!__builtin_mul_overflow(inputs, spec->count, &floats) && floats <= SIZE_MAX / 4,
          "%zu x %zu values", spec->count, inputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_string(data, size), *name = memory_format("synthetic:%s", text);
    Error err = {0};
    DataSpec spec;
    size_t inputs;
    if (synthetic_parse(name, &spec, &inputs, &err) == 0) {
        check_spec(&spec, inputs);
    } else {
        fuzz_check_error(&err);
    }
    size_t sizes[MLP_MAX_HIDDEN];
    Error error = {0};
    int count = model_parse_hidden(text, sizes, &error);
    if (count < 0) fuzz_check_error(&error);
    for (int i = 0; i < count; i++)
        CHECK(sizes[i] >= 1 && sizes[i] <= MLP_MAX_WIDTH, "size %zu", sizes[i]);
    free(name);
    free(text);
    return 0;
}
