/* test_strategy_ddp.c: train_ddp's strategy: the device that each rank opens and the notes it
 * prints, on a host with any number of GPUs; options that depend on the model; the ranks' common
 * choice of attention kernels; jobs.
 */
#include "tests/rigs/captured.h"
#include "tests/rigs/check.h"
#include "tests/rigs/fake_gpus.h"
#include "tests/rigs/peak_memory.h"
#include "tests/rigs/play_backend.h"
#include "tests/rigs/ranks.h"

#include "common/base/profile.h"
#include "common/nn/attention_choice.h"
#include "common/nn/layers.h"
#include "ddp/agree_kernels.h"
#include "ddp/ddp_options.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/features/sync_batch_norm.h"
#include "ddp/own/own_all_reduce.h"
#include "ddp/rendezvous/init.h"
#include "ddp/strategy_ddp.h"
#include "ddp/strategy_ranks.h"

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
    // A rank opens the GPU of its local rank, if the host has a GPU for each of its ranks.
    {2, "auto", 0, 2, false, false, "cuda:0 ", "", ""},
    {2, "auto", 1, 2, false, false, "cuda:1 ", "", ""},
    {3, "cuda", 1, 2, false, false, "cuda:1 ", "", ""},
    {2, "cpu", 1, 2, false, false, "cpu:1 ", "", ""},
    {0, "auto", 1, 2, false, false, "cpu:1 ", "", ""},
    // Otherwise auto falls back to the CPU, noted by one rank; an explicit cuda is an error.
    {1, "auto", 0, 2, false, false, "cpu:0 ", ON_THE_CPU, ""},
    {1, "auto", 1, 2, false, false, "cpu:1 ", "", ""},
    {1, "cuda", 1, 2, false, false, "", "",
     "2 ranks and 1 GPU on this host: start one rank per GPU (ddprun --nproc-per-node gpu), or, "
     "for "
     "correctness only, ddprun --fake-hosts"},
    {2, "cuda", 0, 3, false, false, "", "", "3 ranks and 2 GPUs on this host: "},
    {0, "cuda", 1, 2, false, false, "", "", "cuda:1: the host has 0"},
    // Fake hosts share the first GPU if there are too few GPUs.
    {1, "auto", 0, 2, true, false, "cuda:0 ", FAKE_HOSTS_NOTE, ""},
    {1, "auto", 1, 2, true, false, "cuda:0 ", "", ""},
    {2, "auto", 1, 2, true, false, "cuda:1 ", "", ""},
    {2, "cuda", 2, 3, true, false, "cuda:0 ", "", ""},
    {0, "auto", 0, 2, true, false, "cpu:0 ", "", ""},
    {0, "auto", 1, 2, true, false, "cpu:1 ", "", ""},
    {0, "cuda", 0, 2, true, false, "", "", "cuda:0: the host has 0"},
    // A task of srun sees only its own GPU.
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

// In a world of one, a note says how to start more ranks.
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

typedef struct Alone { // a rank in a world of one
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

// SyncBatchNorm communicates inside a step, unless the world has one rank.
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

// --no-broadcast-buffers is an error if and only if the model has no buffers.
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

// In all 16 combinations each option sets its field of the configuration.
static void options_become_the_configuration(void **state) {
    (void)state;
    for (int k = 0; k < 16; k++) {
        DdpOptions ddp = ddp_options_default();
        ddp.no_overlap = k & 1;
        ddp.no_broadcast_buffers = k & 2;
        ddp.normalize = k & 4 ? "global" : "average";
        ddp.sampler = k & 8 ? "blocked" : "interleaved";
        ddp_options_derive(&ddp);
        assert_int_equal(ddp.config.overlap, !(k & 1));
        assert_int_equal(ddp.config.broadcast_buffers, !(k & 2));
        assert_int_equal(ddp.config.global_normalization, !!(k & 4));
        assert_int_equal(ddp.blocked, !!(k & 8));
    }
}

static int no_sum(ProcessGroup *group, float *values, size_t count, Error *err) {
    (void)group, (void)values, (void)count, (void)err;
    return -1;
}

// A user's all-reduce needs gradients in host memory, and a group that has not failed.
static void a_sum_of_ones_own_needs_the_hosts_memory(void **state) {
    (void)state;
    DataSource data = {0};
    const TrainConfig config = {.device = "cpu"};
    const OwnAllReduce table = {OWN_ALL_REDUCE_VERSION, no_sum};
    for (int way = 0; way < 4; way++) { // 0: user's sum; 1: and a GPU; 2: broken; 3: GPU
        Play play;
        Error err = {0};
        const bool queues = way == 1 || way == 3;
        DdpOptions ddp = {.own = {.sum = way == 0 || way == 1 ? &table : NULL}};
        Alone alone = alone_open(true);
        ProcessGroup *group = open_group(&play, queues ? &QUEUED : &SIMPLE, 1);
        const Error cause = {.status = STATUS_FAILED, .message = "the disk is full"};
        if (way == 2) pg_abort(group, &cause);
        const int status = ddp_options_prepare(&ddp, &config, &data, alone.model, group, &err);
        assert_int_equal(status, way == 1 || way == 2 ? -1 : 0);
        if (way == 1) check_message(&err, "and queue's gradients are on GPUs");
        if (way == 2) check_message(&err, "the disk is full");
        pg_close(group);
        pg_close(alone.group);
        module_close(alone.model);
        device_close(alone.device);
    }
}

// ---- attention's kernels ------------------------------------------------------------------------

static _Thread_local struct {
    AttentionChoices mine, set; // this rank's measured differences; the choices that were set
    int sets;
} kernels;

AttentionChoices __wrap_attention_choices(Module *module, Device *device);
void __wrap_attention_choices_set(const AttentionChoices *choices, Module *module, Device *device);

AttentionChoices __wrap_attention_choices(Module *module, Device *device) {
    (void)module, (void)device;
    return kernels.mine;
}

void __wrap_attention_choices_set(const AttentionChoices *choices, Module *module, Device *device) {
    (void)module, (void)device;
    kernels.set = *choices;
    kernels.sets++;
}

// The differences that rank r measures are r and 10 - r: the maximum over ranks of each head size
// is set on all ranks.
static void choose(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const double rank = pg_rank(group), last = pg_size(group) - 1;
    Error cause = {.status = STATUS_FAILED, .message = "the disk is full"}, err = {0};
    memset(&kernels, 0, sizeof kernels);
    if (agree_kernels(NULL, group, &outcome->error) != 0) problem(outcome, "without attention");
    if (kernels.sets != 0 || pg_sequence(group) != 0) problem(outcome, "without attention");
    kernels.mine = (AttentionChoices){2, {{8, rank}, {16, 10 - rank}}};
    if (agree_kernels(NULL, group, &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
    if (kernels.sets != 1 || kernels.set.count != 2 || kernels.set.of[0].difference != last ||
        kernels.set.of[1].difference != 10)
        problem(outcome, "%g and %g", kernels.set.of[0].difference, kernels.set.of[1].difference);
    if (pg_run(group, pg_barrier(), &err) != 0) problem(outcome, "%s", err.message);
    (void)pg_abort(group, &cause);
    if (agree_kernels(NULL, group, &err) == 0 || kernels.sets != 1)
        problem(outcome, "a broken group agrees");
}

static void ranks_agree_on_attentions_kernels(void **state) {
    (void)state;
    static const char *const LINES[] = {"off for heads of 8: that of rank 2 is 2.0e+00 times",
                                        "off for heads of 16: that of rank 0 is 1.0e+01 times"};
    for (int world = 1; world <= 3; world += 2) {
        Captured captured = captured_begin();
        play_ranks(AS_THREADS, world, 30, choose, NULL, NULL);
        char *printed = captured_end(&captured);
        for (int i = world == 1; i < 2; i++) { // printed by one rank
            const char *line = strstr(printed, LINES[i]);
            if (!line || strstr(line + 1, LINES[i]))
                fail_msg("not once '%s': %s", LINES[i], printed);
        }
        free(printed);
    }
}

// ---- jobs ---------------------------------------------------------------------------------------

typedef struct Watched {
    char phase[16];
    uint64_t step;
    int fails, closes;
} Watched;

static void watch_enters(void *context, const char *phase, uint64_t step) {
    Watched *watched = context;
    snprintf(watched->phase, sizeof watched->phase, "%s", phase);
    watched->step = step;
}
static void watch_fails(void *context) {
    ((Watched *)context)->fails++;
}
static void watch_closes(void *context) {
    ((Watched *)context)->closes++;
}

// Rank 2 of three: the job's ranks and its watch are the group's.
static void a_job_has_its_groups_ranks(void **state) {
    (void)state;
    for (int fake_hosts = 0; fake_hosts < 2; fake_hosts++) {
        Play play;
        Error err = {0};
        Watched watched = {.fails = 0};
        Alone alone = alone_open(false);
        play_open(&play);
        const PgOptions options = {.timeout_s = 30,
                                   .observer = {.context = &watched,
                                                .enters = watch_enters,
                                                .fails = watch_fails,
                                                .close = watch_closes}};
        ProcessGroup *group = pg_new(&SIMPLE, &play, 2, 3, &options, &err);
        Sampler *sampler = sampler_blocked(12, 6, 3, 2, false, false, 0, &err);
        Strategy *strategy = strategy_ranks(alone.model, alone.model, group, alone.device, sampler);
        assert_ptr_equal(strategy_ranks_group(strategy), group);
        assert_ptr_equal(strategy->module, alone.model);
        Job *job = job_ranks(strategy, &(Rendezvous){.fake_hosts = fake_hosts});
        assert_true(job->rank == 2 && job->devices == 3 && job->fake_hosts == fake_hosts);
        assert_string_equal(job->name, "ddp");
        assert_string_equal(job->backend, "play");
        job->watch->enter(job->watch, "evaluate", 7);
        assert_string_equal(watched.phase, "evaluate");
        assert_int_equal(watched.step, 7);
        double sum = 3;
        assert_int_equal(strategy_sum(strategy, &sum, 1, &err), 0);
        assert_true(play.last.collective.type == PG_F64 && play.last.collective.op == PG_SUM &&
                    play.last.collective.count == 1);
        assert_int_equal(job->moved_bytes(job), 100); // the backend's figure
        assert_int_equal(job->watch->check(job->watch, &err), 0);
        const Error cause = {.status = STATUS_FAILED, .message = "the loss is nan"};
        job->watch->give_up(job->watch, &cause);
        assert_int_equal(job->watch->check(job->watch, &err), -1);
        assert_string_equal(err.message, "rank 2: the loss is nan");
        assert_int_equal(strategy_sum(strategy, &sum, 1, &err), -1);
        assert_true(watched.fails == 1 && watched.closes == 0);
        fake.closed = 0;
        job->close(job);
        assert_true(watched.closes == 1 && fake.closed == 1);
        pg_close(alone.group);
    }
}

// A step's communication time covers that step, not all steps so far.
static void a_step_has_its_own_communication(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    float x[4] = {0};
    Alone alone = alone_open(false);
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    Profile profile = {.steps = 0};
    Sampler *sampler = sampler_blocked(12, 6, 3, 0, false, false, 0, &err);
    Strategy *strategy = strategy_ranks(alone.model, alone.model, group, alone.device, sampler);
    uint64_t before = 0;
    play.slow = true;
    for (int step = 0; step < 3; step++) {
        profile_begin_step(&profile);
        assert_int_equal(pg_run(group, pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_SUM), 0), &err),
                         0);
        strategy_ranks_profile(strategy, &profile);
        const uint64_t now = pg_totals(group).bucket_ns;
        assert_true(now > before && profile.step_communication == now - before);
        profile_end_step(&profile);
        before = now;
    }
    Job *job = job_ranks(strategy, &(Rendezvous){.world_size = 3});
    job->close(job);
    pg_close(alone.group);
}

static int open_and_close_jobs(const char *unused) {
    (void)unused;
    for (int i = 0; i < 40; i++) {
        Play play;
        Error err = {0};
        Alone alone = alone_open(false);
        ProcessGroup *group = open_group(&play, &SIMPLE, 3);
        Sampler *sampler = sampler_blocked(1 << 17, 3 << 4, 3, 0, false, false, 0, &err);
        Strategy *strategy = strategy_ranks(alone.model, alone.model, group, alone.device, sampler);
        Job *job = job_ranks(strategy, &(Rendezvous){.world_size = 3});
        job->close(job);
        pg_close(alone.group);
    }
    return 0;
}

// Leaks would add up: the sampler's order takes 1 MiB, a group with its recorder half of that.
static void a_closed_job_leaves_no_memory(void **state) {
    (void)state;
    if (UNDER_ASAN || UNDER_TSAN) skip(); // freed memory is kept; ASan reports leaks itself
    assert_peak_below(12, open_and_close_jobs, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_opens_its_device),
        cmocka_unit_test(a_single_rank_is_noted),
        cmocka_unit_test(one_rank_can_record_sync_batch_norm),
        cmocka_unit_test(buffers_are_needed_for_their_option),
        cmocka_unit_test(options_become_the_configuration),
        cmocka_unit_test(a_sum_of_ones_own_needs_the_hosts_memory),
        cmocka_unit_test(ranks_agree_on_attentions_kernels),
        cmocka_unit_test(a_job_has_its_groups_ranks),
        cmocka_unit_test(a_step_has_its_own_communication),
        cmocka_unit_test(a_closed_job_leaves_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
