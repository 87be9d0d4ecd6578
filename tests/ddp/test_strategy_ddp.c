/* test_strategy_ddp.c: the device that each rank of train_ddp opens, and its notes, on a host with
 * any number of GPUs; the options that depend on the model; a job of one rank.
 */
#include "tests/rigs/captured.h"
#include "tests/rigs/check.h"
#include "tests/rigs/fake_gpus.h"

#include "common/nn/layers.h"
#include "ddp/ddp_options.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/features/sync_batch_norm.h"
#include "ddp/rendezvous/init.h"
#include "ddp/strategy_ddp.h"

#define FAKE_HOSTS_NOTE "fake hosts: ranks may share a GPU, and the times below mean nothing\n"
#define ON_THE_CPU      "2 devices wanted, 1 GPU on this host: on the CPU\n"

typedef struct Case {
    int gpus;
    const char *kind;
    int local_rank, local_world_size;
    bool fake_hosts, own_gpu;
    const char *opened, *printed, *error;
} Case;

static const Case CASES[] = {
    // A rank has the GPU of its number, if the host has one for each of its ranks.
    {2, "auto", 0, 2, false, false, "cuda:0 ", "", ""},
    {2, "auto", 1, 2, false, false, "cuda:1 ", "", ""},
    {3, "cuda", 1, 2, false, false, "cuda:1 ", "", ""},
    {2, "cpu", 1, 2, false, false, "cpu:1 ", "", ""},
    {0, "auto", 1, 2, false, false, "cpu:1 ", "", ""},
    // Otherwise auto is the CPU, which one rank says; the user's choice is an error.
    {1, "auto", 0, 2, false, false, "cpu:0 ", ON_THE_CPU, ""},
    {1, "auto", 1, 2, false, false, "cpu:1 ", "", ""},
    {1, "cuda", 1, 2, false, false, "", "",
     "2 ranks and 1 GPU on this host: start one rank per GPU (ddprun --nproc-per-node gpu), or, "
     "for "
     "correctness only, ddprun --fake-hosts"},
    {2, "cuda", 0, 3, false, false, "", "", "3 ranks and 2 GPUs on this host: "},
    {0, "cuda", 1, 2, false, false, "", "", "cuda:1: the host has 0"},
    // Fake hosts share the first GPU if there are too few.
    {1, "auto", 0, 2, true, false, "cuda:0 ", FAKE_HOSTS_NOTE, ""},
    {1, "auto", 1, 2, true, false, "cuda:0 ", "", ""},
    {2, "auto", 1, 2, true, false, "cuda:1 ", "", ""},
    {2, "cuda", 2, 3, true, false, "cuda:0 ", "", ""},
    {0, "auto", 0, 2, true, false, "cpu:0 ", "", ""},
    {0, "auto", 1, 2, true, false, "cpu:1 ", "", ""},
    {0, "cuda", 0, 2, true, false, "", "", "cuda:0: the host has 0"},
    // A task of srun sees its own GPU alone.
    {1, "auto", 0, 2, false, true, "cuda:0 ", "", ""},
    {1, "auto", 3, 4, false, true, "cuda:0 ", "", ""},
    {1, "cuda", 1, 2, false, true, "cuda:0 ", "", ""},
    {0, "auto", 1, 2, false, true, "cpu:1 ", "", ""},
};

static void each_rank_opens_its_device(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        const TrainConfig config = {.device = c->kind, .threads = 1};
        const Rendezvous me = {.rank = c->local_rank,
                               .world_size = c->local_world_size,
                               .local_rank = c->local_rank,
                               .local_world_size = c->local_world_size,
                               .fake_hosts = c->fake_hosts,
                               .own_gpu = c->own_gpu};
        Error err = {0};
        fake = (struct FakeGpus){.gpus = c->gpus};
        Captured captured = captured_begin();
        Device *device = ddp_open_device(&config, &me, &err);
        char *printed = captured_end(&captured);
        assert_string_equal(fake.opened, c->opened);
        assert_string_equal(printed, c->printed);
        assert_int_equal(device == NULL, *c->error != '\0');
        assert_memory_equal(err.message, c->error, strlen(c->error));
        if (device) assert_int_equal(err.status, STATUS_OK);
        device_close(device);
        free(printed);
    }
}

// One rank alone says how to start more.
static void a_single_rank_is_noted(void **state) {
    (void)state;
    const TrainConfig config = {.device = "cpu", .threads = 1};
    for (int world = 1; world <= 2; world++) {
        const Rendezvous me = {.world_size = world, .local_world_size = 1};
        Error err = {0};
        Captured captured = captured_begin();
        device_close(ddp_open_device(&config, &me, &err));
        char *printed = captured_end(&captured);
        assert_string_equal(
            printed,
            world == 1 ? "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n" : "");
        free(printed);
    }
}

typedef struct Alone { // a world of one
    ProcessGroup *group;
    Device *device;
    Module *model;
} Alone;

static Alone alone_open(bool with_norm) {
    Error err = {0};
    Alone alone = {.device = device_open("cpu:0", &err)};
    CHECK_OK(init_thread_groups(1, 30, &alone.group, &err) == 0, err);
    alone.model = layer_sequential("Model");
    module_add(alone.model, "fc", layer_linear(alone.device, 3, 2));
    if (with_norm) module_add(alone.model, "bn", layer_batch_norm(alone.device, 2));
    return alone;
}

// SyncBatchNorm communicates inside a step, unless there is one rank only.
static void one_rank_can_record_sync_batch_norm(void **state) {
    (void)state;
    Error err = {0};
    Alone alone = alone_open(true);
    const DdpConfig config = ddp_config_default();
    const Rendezvous me = {.world_size = 1, .local_world_size = 1};
    assert_non_null(sync_batch_norm_convert(alone.model, alone.group, &err));
    assert_true(module_has_type(alone.model, "SyncBatchNorm"));
    Module *wrapper = distributed_data_parallel(alone.model, alone.group, &config, &err);
    CHECK_OK(wrapper, err);
    Sampler *sampler = sampler_blocked(10, 5, 1, 0, false, false, 0, &err);
    Job *job = job_ddp(strategy_ddp(wrapper, alone.device, sampler), &me);
    for (int devices = 1; devices <= 3; devices++) {
        job->devices = devices;
        const char *why = job->unrecordable(job);
        if (devices == 1)
            assert_null(why);
        else
            assert_string_equal(why, "SyncBatchNorm");
    }
    job->close(job);
}

// --no-broadcast-buffers is an error exactly if the model has no buffers.
static void buffers_are_needed_for_their_option(void **state) {
    (void)state;
    DataSource data = {0};
    const TrainConfig config = {.device = "cpu"};
    for (int k = 0; k < 4; k++) {
        Error err = {0};
        DdpOptions ddp = {.no_broadcast_buffers = k & 1};
        Alone alone = alone_open(k & 2);
        int status = ddp_options_prepare(&ddp, &config, &data, alone.model, alone.group, &err);
        assert_int_equal(status, k == 1 ? -1 : 0);
        if (k == 1) {
            assert_int_equal(err.status, STATUS_USAGE);
            assert_string_equal(err.message,
                                "--no-broadcast-buffers has no effect: the model has no buffers");
        }
        pg_close(alone.group);
        module_close(alone.model);
        device_close(alone.device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_opens_its_device),
        cmocka_unit_test(a_single_rank_is_noted),
        cmocka_unit_test(one_rank_can_record_sync_batch_norm),
        cmocka_unit_test(buffers_are_needed_for_their_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
