/* test_strategy_dp.c: the devices that train_dp opens, and its note about idle devices. GPUs are
 * simulated: the test sets their number, and opens CPU devices named as GPUs.
 */
#include "tests/rigs/captured.h"
#include "tests/rigs/check.h"
#include "tests/rigs/data_parallel_rig.h"
#include "tests/rigs/fake_gpus.h"

#include "dp/strategy_dp.h"

// Opens and closes the devices; returns their number, or -1.
static int open_devices(const char *kind, DpOptions dp, Error *err) {
    Device *devices[DP_MAX_DEVICES];
    const TrainConfig config = {.device = kind, .threads = 1};
    *fake.opened = *fake.bound = '\0';
    fake.closed = 0;
    int count = dp_open_devices(&config, &dp, devices, err);
    if (count > 0) assert_ptr_equal(devices[count - 1], fake.last);
    for (int i = 0; i < count; i++) device_close(devices[i]);
    return count;
}

// The default is all GPUs, as in PyTorch; without a GPU, two CPU devices.
static void the_default_is_all_gpus(void **state) {
    (void)state;
    static const struct Host {
        int gpus, count;
        const char *kind, *first;
    } HOSTS[] = {{0, 2, "auto", "cpu:0 cpu:1 "},
                 {1, 1, "auto", "cuda:0 "},
                 {3, 3, "auto", "cuda:0 cuda:1 cuda:2 "},
                 {3, 3, "cuda", "cuda:0 cuda:1 cuda:2 "},
                 {3, 2, "cpu", "cpu:0 cpu:1 "},
                 {DP_MAX_DEVICES - 1, DP_MAX_DEVICES - 1, "cuda", "cuda:0 cuda:1 "},
                 {DP_MAX_DEVICES, DP_MAX_DEVICES, "cuda", "cuda:0 cuda:1 "},
                 {DP_MAX_DEVICES + 1, DP_MAX_DEVICES, "cuda", "cuda:0 cuda:1 "}};
    for (size_t i = 0; i < sizeof HOSTS / sizeof *HOSTS; i++) {
        Error err = {0};
        fake.gpus = HOSTS[i].gpus;
        assert_int_equal(open_devices(HOSTS[i].kind, dp_options_default(), &err), HOSTS[i].count);
        assert_memory_equal(fake.opened, HOSTS[i].first, strlen(HOSTS[i].first));
        assert_int_equal(fake.closed, HOSTS[i].count);
        assert_string_equal(fake.bound, "");
    }
}

// All devices are of one kind: GPUs if the GPU with the highest number exists, else CPUs.
static void devices_are_of_one_kind(void **state) {
    (void)state;
    Error err = {0};
    fake.gpus = 3;
    assert_int_equal(open_devices("auto", (DpOptions){.device_ids = "2,0"}, &err), 2);
    assert_string_equal(fake.opened, "cuda:2 cuda:0 ");
    assert_int_equal(open_devices("auto", (DpOptions){.device_ids = "3,0"}, &err), 2);
    assert_string_equal(fake.opened, "cpu:3 cpu:0 ");
    assert_int_equal(open_devices("auto", (DpOptions){.device_ids = "0,3,1"}, &err), 3);
    assert_string_equal(fake.opened, "cpu:0 cpu:3 cpu:1 ");
    assert_int_equal(open_devices("auto", (DpOptions){.devices = 3}, &err), 3);
    assert_string_equal(fake.opened, "cuda:0 cuda:1 cuda:2 ");
    assert_int_equal(open_devices("auto", (DpOptions){.devices = 4}, &err), 4);
    assert_string_equal(fake.opened, "cpu:0 cpu:1 cpu:2 cpu:3 ");
    assert_int_equal(open_devices("cuda", (DpOptions){.devices = 1}, &err), 1);
    assert_string_equal(fake.opened, "cuda:0 ");
    assert_int_equal(err.status, STATUS_OK);
}

static void a_missing_device_closes_the_others(void **state) {
    (void)state;
    Error err = {0};
    fake.gpus = 2;
    assert_int_equal(open_devices("cuda", (DpOptions){.device_ids = "1,0,2"}, &err), -1);
    assert_string_equal(err.message, "cuda:2: the host has 2");
    assert_string_equal(fake.opened, "cuda:1 cuda:0 ");
    assert_int_equal(fake.closed, 2);
    err = (Error){0};
    fake.gpus = 0; // the default opens GPU 0, whose error gives the reason
    assert_int_equal(open_devices("cuda", dp_options_default(), &err), -1);
    assert_string_equal(err.message, "cuda:0: the host has 0");
    assert_int_equal(fake.closed, 0);
    err = (Error){0};
    assert_int_equal(open_devices("cpu", (DpOptions){.device_ids = "0,x"}, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(fake.opened, "");
}

static void each_device_has_its_share_of_the_cores(void **state) {
    (void)state;
    Error err = {0};
    fake.gpus = 0;
    DpOptions dp = {.devices = 3, .bind = DP_BIND_CORES};
    assert_int_equal(open_devices("cpu", dp, &err), 3);
    assert_string_equal(fake.bound, "cpu:0:0/3 cpu:1:1/3 cpu:2:2/3 ");
}

// ---- options ------------------------------------------------------------------------------------

// Parses one or two options with their values; returns the status of their check.
static int check(DpOptions *dp, char *first, char *value, char *second, char *other, Error *err) {
    Options options = {.program = "test", .summary = "-"};
    *dp = dp_options_default();
    dp_options(&options, dp);
    CHECK_OK(options_parse(&options, second ? 5 : 3,
                           (char *[]){"", first, value, second, other, NULL}, err) == 0,
             *err);
    return dp_options_check(dp, &options, err);
}

static void a_number_of_devices_or_a_list(void **state) {
    (void)state;
    DpOptions dp;
    Error err = {0};
    assert_int_equal(check(&dp, "--devices", "64", NULL, NULL, &err), 0);
    assert_int_equal(dp.devices, DP_MAX_DEVICES);
    assert_null(dp.device_ids);
    assert_int_equal(check(&dp, "--device-ids", "1,0", "--bind", "cores", &err), 0);
    assert_string_equal(dp.device_ids, "1,0");
    assert_int_equal(dp.bind, DP_BIND_CORES);
    assert_null(dp.own);
    assert_int_equal(check(&dp, "--devices", "2", "--device-ids", "0,1", &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, "--devices has no effect: --device-ids lists the devices");
}

// ---- idle devices -------------------------------------------------------------------------------

// Returns the job's note for a data set of `size` rows in batches of `batch` on `count` devices.
static char *said_of(size_t size, size_t batch, bool drop_last, int count) {
    Error err = {0};
    Device *devices[8];
    char name[16];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "cpu:%d", i);
        devices[i] = device_open(name, &err);
    }
    Module *wrapper = data_parallel(build_mlp(devices[0]), devices, count, &err);
    Sampler *sampler = sampler_whole(size, batch, false, drop_last, 0, &err);
    Strategy *strategy = strategy_dp(wrapper, devices[0], sampler);
    Captured captured = captured_begin();
    Job *job = job_dp(strategy, devices, count);
    char *said = captured_end(&captured);
    fake.closed = 0;
    job->close(job);
    assert_int_equal(fake.closed, count);
    return said;
}

static void idle_devices_are_noted_once(void **state) {
    (void)state;
    static const struct Case {
        size_t size, batch;
        bool drop_last;
        int devices;
        const char *said;
    } CASES[] = {
        {64, 8, false, 4, ""},
        {60, 10, false, 4, ""}, // chunks of 3, 3, 3, 1
        {70, 7, false, 4, ""},  // chunks of 2, 2, 2, 1
        {9, 9, false, 1, ""},
        {45, 9, false, 4,
         "note: each batch, 9 rows on 4 devices: 3 chunks of at most 3, 1 device idle\n"},
        {3, 3, false, 5,
         "note: each batch, 3 rows on 5 devices: 3 chunks of at most 1, 2 devices idle\n"},
        {1, 1, false, 2,
         "note: each batch, 1 row on 2 devices: 1 chunk of at most 1, 1 device idle\n"},
        {46, 10, false, 4,
         "note: the epoch's last batch, 6 rows on 4 devices: 3 chunks of at most 2, 1 device "
         "idle\n"},
        {46, 10, true, 4, ""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        char *said = said_of(c->size, c->batch, c->drop_last, c->devices);
        assert_string_equal(said, c->said);
        free(said);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_is_all_gpus),
        cmocka_unit_test(devices_are_of_one_kind),
        cmocka_unit_test(a_missing_device_closes_the_others),
        cmocka_unit_test(each_device_has_its_share_of_the_cores),
        cmocka_unit_test(a_number_of_devices_or_a_list),
        cmocka_unit_test(idle_devices_are_noted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
