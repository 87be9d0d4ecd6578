/* test_checks.c: requirements of --tf32 and --cuda-graph on a device (checks_device), also for GPUs
 * that no test machine has: a simulated device has only the fields that the checks read. Further:
 * the device kind that --device auto selects (train_device_kind), the note about checkpoints from
 * before Adam's factors were computed in double (checks_resumed), and that no memory leaks when a
 * model's weights cannot be read or written.
 */
#include "tests/rigs/check.h"

#include <unistd.h>

#include "common/train/checks.h"
#include "common/train/setup.h"
#include "tests/rigs/captured.h"

static const Kernels ON_HOST = {.name = "cpu",
                                .is_cpu = true,
                                .is_synchronous = true,
                                .is_addressable = true},
                     ON_GPU = {.name = "cuda"};

typedef struct Case {
    const char *words; // part of the error; NULL: no error
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
    {"the number of counted pixels",
     {.amp = PRECISION_F32, .cuda_graph = true},
     &ON_GPU,
     1,
     true,
     NULL},
    {"--amp fp16", {.amp = PRECISION_F16, .cuda_graph = true}, &ON_GPU, 1, false, NULL},
    {"--cuda-graph: a hook decides on the host in every step",
     {.amp = PRECISION_F32, .cuda_graph = true},
     &ON_GPU,
     1,
     false,
     "a hook"},
    {"a step of several micro-batches is not captured",
     {.amp = PRECISION_F32, .cuda_graph = true, .accumulate_steps = 2, .global_batch = 2},
     &ON_GPU,
     1,
     false,
     NULL},
    {NULL, {.cuda_graph = true, .accumulate_steps = 1, .global_batch = 2}, &ON_GPU, 1, false, NULL},
    {"--profile",
     {.amp = PRECISION_F32, .cuda_graph = true, .profile = true},
     &ON_GPU,
     1,
     false,
     NULL},
};

static const char *what_state_names(const Job *self) {
    return self->strategy->state;
}

static void what_a_device_is_asked(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        Device device = {.kernels = c->kernels};
        snprintf(device.name, sizeof device.name, "this:0");
        DataSource data = {.train = {.dense = c->dense}};
        Strategy strategy = {.device = &device, .state = (void *)c->unrecordable};
        const Job job = {.strategy = &strategy,
                         .devices = c->devices,
                         .all_count = c->devices,
                         .unrecordable = what_state_names};
        Error err = {0};
        int failed = checks_device(&c->config, &data, &job, &err);
        if ((failed != 0) != (c->words != NULL)) fail_msg("case %zu: %s", i, err.message);
        if (!c->words) continue;
        check_message(&err, c->words);
        assert_int_equal(err.status, STATUS_USAGE);
    }
}

// The second of two GPUs is older. bf16 and TF32 need compute capability 8.0; a device without one
// (0, such as the ref backend's) is not checked.
static void older_gpus(void **state) {
    (void)state;
    static const struct {
        int capability;
        Precision amp;
        bool tf32;
        const char *words; // part of the error; NULL: no error
    } cases[] = {
        {80, PRECISION_BF16, true, NULL},
        {0, PRECISION_BF16, true, NULL},
        {75, PRECISION_F16, false, NULL},
        {75, PRECISION_F32, false, NULL},
        {79, PRECISION_BF16, true, "--amp bf16: second:1 has compute capability 7.9, and it needs"},
        {75, PRECISION_F16, true, "--tf32: second:1 has compute capability 7.5, and it needs 8.0"},
        {101, PRECISION_BF16, true, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const TrainConfig config = {.amp = cases[i].amp, .tf32 = cases[i].tf32};
        Device first = {.kernels = &ON_GPU, .capability = 90}, second = first;
        second.capability = cases[i].capability;
        snprintf(second.name, sizeof second.name, "second:1");
        Strategy strategy = {.device = &first};
        Device *all[] = {&first, &second};
        const Job job = {.strategy = &strategy, .all = all, .all_count = 2};
        Error err = {0};
        int failed = checks_device(&config, &(DataSource){0}, &job, &err);
        if ((failed != 0) != (cases[i].words != NULL)) fail_msg("case %zu: %s", i, err.message);
        if (failed) check_message(&err, cases[i].words);
    }
}

// Options that need one device, or several, or a row for each part of a batch.
static void devices_and_parts(void **state) {
    (void)state;
    static const struct {
        TrainConfig config;
        int here, everywhere; // devices of this process, of the job
        const char *name, *words;
    } cases[] = {
        {{.threads = 1}, 2, 2, "dp", NULL},
        {{.threads = 2}, 1, 2, "ddp", NULL},
        {{.threads = 2}, 2, 2, "dp", "the 2 of this one would take turns with the same threads"},
        {{.link = "10,5"}, 1, 2, "ddp", NULL},
        {{.link = "10,5"}, 1, 1, "single", "one device has nothing to send"},
        {{.accumulate_steps = 1, .global_batch = 1}, 2, 2, "dp", NULL}, // one is idle: allowed
        {{.accumulate_steps = 3, .global_batch = 7}, 1, 2, "ddp", NULL},
        {{.accumulate_steps = 2, .global_batch = 3},
         1,
         2,
         "ddp",
         "a device has 1 of --global-batch 3"},
        {{.accumulate_steps = 4, .global_batch = 7},
         1,
         2,
         "ddp",
         "a device has 3 of --global-batch 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Device device = {.kernels = &ON_HOST};
        Strategy strategy = {.device = &device};
        const Job job = {.strategy = &strategy,
                         .name = cases[i].name,
                         .devices = cases[i].everywhere,
                         .all_count = cases[i].here};
        Error err = {0};
        int failed = checks_device(&cases[i].config, &(DataSource){0}, &job, &err);
        if ((failed != 0) != (cases[i].words != NULL)) fail_msg("case %zu: %s", i, err.message);
        if (failed) check_message(&err, cases[i].words);
    }
}

// Only rank 0 reads and writes initial weights; a model whose file fails is freed.
static void no_model_no_memory(void **state) {
    (void)state;
    Error err = {0};
    DataSource *data = dataset_open("digits", 0, &err);
    CHECK_OK(data, err);
    Device *device = device_open("cpu:0", &err);
    CHECK_OK(device, err);
    const TrainConfig none = train_config_default();
    TrainConfig loads = none, saves = none;
    loads.load_init = "no such folder/a.safetensors";
    saves.save_init = "no such folder/b.safetensors";
    const TrainConfig *const configs[] = {&none, &loads, &saves};
    for (int i = 0; i < 3; i++)
        for (int rank = 0; rank < 2; rank++) {
            Error why = {0};
            Module *model = train_create_model(configs[i], data, device, rank, &why);
            assert_int_equal(model != NULL, i == 0 || rank == 1);
            if (model)
                module_close(model);
            else
                check_message(&why, "no such folder/");
            assert_int_equal(device->bytes, 0);
        }
    device_close(device);
    dataset_close(data);
}

// Resumes from a checkpoint whose betas are `was` in a run whose betas are `is_now`; returns
// whether stderr contained `words`.
static bool resuming_says(const char *was, const char *is_now, const char *words) {
    Progress saved = {0}, now = {0};
    snprintf(saved.notes[NOTE_BETAS], sizeof *saved.notes, "%s", was);
    snprintf(now.notes[NOTE_BETAS], sizeof *now.notes, "%s", is_now);
    FILE *said = tmpfile();
    assert_non_null(said);
    int before = dup(STDERR_FILENO);
    assert_true(dup2(fileno(said), STDERR_FILENO) >= 0);
    RunLog log = log_open(false);
    Error err = {0};
    int failed = checks_resumed("old", &saved, &now, &log, &err);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    CHECK_OK(!failed, err);
    rewind(said);
    char text[1024];
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    fclose(said);
    return *words ? strstr(text, words) != NULL : *text == '\0';
}

static void an_older_adam_is_noted(void **state) {
    (void)state;
    assert_true(resuming_says("", "0.9,0.999", "old was made when Adam's 1 - beta2"));
    assert_true(resuming_says("0.9,0.999", "0.9,0.999", ""));
    assert_true(resuming_says("0.9,0.99", "0.9,0.999", "--betas 0.9,0.99, this run has 0.9,0.999"));
    assert_true(resuming_says("", "", "")); // sgd has no betas
}

// ---- --device auto ------------------------------------------------------------------------------

static struct {
    int gpus;        // usable GPUs of this host
    const char *why; // the reason why GPUs are unusable; NULL: there are none
} host;

int __wrap_device_usable(const char *kind, Error *why);
int __wrap_device_usable(const char *kind, Error *why) {
    assert_string_equal(kind, "cuda");
    if (host.why) error_set(why, STATUS_FAILED, "%s", host.why);
    return host.gpus;
}

static void which_devices_a_run_takes(void **state) {
    (void)state;
    static const char OLD[] = "the driver is too old";
    static const struct {
        const char *asked;
        int gpus, devices;
        const char *why;
        bool silent, dry;
        const char *kind, *said;
    } cases[] = {
        {"auto", 0, 1, NULL, false, false, "cpu", ""},
        {"auto", 0, 1, OLD, false, false, "cpu", "the driver is too old: on the CPU\n"},
        {"auto", 0, 1, OLD, true, false, "cpu", ""},
        {"auto", 1, 1, NULL, false, false, "cuda", ""},
        {"auto", 3, 3, NULL, false, false, "cuda", ""},
        {"auto", 3, 2, NULL, false, false, "cuda", ""},
        {"auto", 1, 2, NULL, false, false, "cpu",
         "2 devices wanted, 1 GPU on this host: on the CPU\n"},
        {"auto", 2, 3, NULL, false, false, "cpu",
         "3 devices wanted, 2 GPUs on this host: on the CPU\n"},
        {"auto", 2, 3, NULL, true, false, "cpu", ""},
        {"cuda", 0, 1, OLD, false, false, "cuda", ""},
        {"cpu", 4, 1, NULL, false, false, "cpu", ""},
        {"auto", 1, 1, NULL, false, true, "dry-cuda", ""},
        {"auto", 0, 1, NULL, false, true, "dry-cpu", ""},
        {"cuda", 0, 1, NULL, false, true, "dry-cuda", ""},
        {"ref", 0, 1, NULL, false, true, "dry-cpu", ""},
        {"dry-cuda", 0, 1, NULL, false, true, "dry-cuda", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const TrainConfig config = {.device = cases[i].asked, .dry_run = cases[i].dry};
        host.gpus = cases[i].gpus;
        host.why = cases[i].why;
        Captured captured = captured_begin();
        const char *kind = train_device_kind(&config, cases[i].devices, !cases[i].silent);
        char *said = captured_end(&captured);
        if (strcmp(kind, cases[i].kind) != 0 || strcmp(said, cases[i].said) != 0)
            fail_msg("case %zu: %s, \"%s\"", i, kind, said);
        free(said);
    }
}

static void settings_of_a_device(void **state) {
    (void)state;
    Error err = {0};
    TrainConfig config = {.device = "cpu", .memory_limit_mib = 1.5, .tf32 = true, .threads = 1};
    Device *device = train_open_device(&config, 3, &err);
    CHECK_OK(device, err);
    assert_string_equal(device->name, "cpu:3");
    assert_int_equal(device->limit_bytes, 3 << 19);
    assert_true(device->tf32);
    assert_null(device->link);
    device_close(device);
    config = (TrainConfig){.device = "cpu", .link = "10gbe", .threads = 1};
    device = train_open_device(&config, 0, &err);
    CHECK_OK(device, err);
    assert_int_equal(device->limit_bytes, 0);
    assert_false(device->tf32);
    assert_non_null(device->link);
    device_close(device);
    config.link = "a rope";
    assert_null(train_open_device(&config, 0, &err));
    check_message(&err, "a rope");
    err = (Error){0};
    config = (TrainConfig){.device = "ref", .threads = 2};
    assert_null(train_open_device(&config, 0, &err));
    check_message(&err, "--threads is for --device cpu, not ref");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_device_is_asked),
                                       cmocka_unit_test(no_model_no_memory),
                                       cmocka_unit_test(older_gpus),
                                       cmocka_unit_test(devices_and_parts),
                                       cmocka_unit_test(an_older_adam_is_noted),
                                       cmocka_unit_test(which_devices_a_run_takes),
                                       cmocka_unit_test(settings_of_a_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
