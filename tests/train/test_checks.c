/* test_checks.c: what --tf32 and --cuda-graph need (checks_device), also of devices that no machine
 * without a GPU has: a device is here only what the checks look at.
 */
#include "tests/rigs/check.h"

#include "common/train/checks.h"

static const Kernels ON_HOST = {.name = "cpu",
                                .is_cpu = true,
                                .is_synchronous = true,
                                .is_addressable = true},
                     ON_GPU = {.name = "cuda"};

typedef struct Case {
    const char *words; // in the error; NULL: all is well
    TrainConfig config;
    const Kernels *kernels;
    int devices; // of this process
    bool dense;
    const char *unrecordable;
} Case;

static const Case CASES[] = {
    {NULL, {.amp = PRECISION_F32}, &ON_HOST, 4, true, NULL},
    {NULL, {.amp = PRECISION_BF16}, &ON_HOST, 1, false, NULL},
    {NULL, {.amp = PRECISION_F16, .profile = true}, &ON_HOST, 2, true, NULL},
    {"--tf32 is for --device cuda, not this:0",
     {.amp = PRECISION_F32, .tf32 = true},
     &ON_HOST,
     1,
     false,
     NULL},
    {NULL, {.amp = PRECISION_F16, .tf32 = true, .profile = true}, &ON_GPU, 2, true, NULL},
    {"--cuda-graph is for --device cuda, not this:0",
     {.amp = PRECISION_F32, .cuda_graph = true},
     &ON_HOST,
     1,
     false,
     NULL},
    {NULL, {.amp = PRECISION_F32, .cuda_graph = true}, &ON_GPU, 1, false, NULL},
    {NULL, {.amp = PRECISION_BF16, .cuda_graph = true, .tf32 = true}, &ON_GPU, 1, false, NULL},
    {"one GPU per process", {.amp = PRECISION_F32, .cuda_graph = true}, &ON_GPU, 2, false, NULL},
    {"how many pixels count", {.amp = PRECISION_F32, .cuda_graph = true}, &ON_GPU, 1, true, NULL},
    {"--amp fp16", {.amp = PRECISION_F16, .cuda_graph = true}, &ON_GPU, 1, false, NULL},
    {"--cuda-graph: a hook has something to decide in every step",
     {.amp = PRECISION_F32, .cuda_graph = true},
     &ON_GPU,
     1,
     false,
     "a hook"},
    {"--profile",
     {.amp = PRECISION_F32, .cuda_graph = true, .profile = true},
     &ON_GPU,
     1,
     false,
     NULL},
};

static const char *what_state_names(const Strategy *self) {
    return self->state;
}

static void what_a_device_is_asked(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        Device device = {.kernels = c->kernels};
        snprintf(device.name, sizeof device.name, "this:0");
        DataSource data = {.train = {.dense = c->dense}};
        Strategy strategy = {.device = &device,
                             .all_count = c->devices,
                             .unrecordable = what_state_names,
                             .state = (void *)c->unrecordable};
        Error err = {0};
        int failed = checks_device(&c->config, &data, &strategy, &err);
        if ((failed != 0) != (c->words != NULL)) fail_msg("case %zu: %s", i, err.message);
        if (!c->words) continue;
        check_message(&err, c->words);
        assert_int_equal(err.status, STATUS_USAGE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_device_is_asked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
