/* test_pg_nccl.c: process groups over NCCL, on GPUs or on the emulator: every collective with
 * device and host buffers, its order relative to kernels, training, CUDA graphs, subgroups.
 */
#include "tests/rigs/nccl_ranks.h"
#include "tests/rigs/trial.h"

#include <math.h>

#include "common/base/memory.h"
#include "common/nn/optimizer.h"
#include "ddp/distributed_data_parallel.h"
#include "tests/rigs/ddp_models.h"

enum { MANY = 100003 };

static int gpus; // of this host, at most WORLD_MAX

static float *to_device(Device *device, const float *values, size_t count) {
    float *memory = device_alloc(device, count * sizeof *memory);
    device_copy(device, memory, NULL, values, count * sizeof *memory);
    return memory;
}

// ---- every collective -----------------------------------------------------------------------

typedef struct Where {
    bool on_device, async;
} Where;

static int run_trial(const Trial *t, Error *error) {
    if (!t->async) return pg_run(t->group, make(t), error);
    PgWork *work = pg_start(t->group, make(t), error);
    return work ? pg_work_wait(work, NULL, NULL, error) : -1;
}

// Fills the buffers on the host, runs the collective on `device`, checks the result on the host.
static void try_one(Trial *t, Device *device) {
    size_t size = type_bytes(t->type), send = send_elements(t) * size;
    size_t receive = (receive_elements(t) + 1) * size;
    Error error = {0};
    Trial there = *t;
    t->send = there.send = memory_zalloc(send);
    t->receive = there.receive = memory_zalloc(receive);
    fill(t);
    if (device) {
        there.send = device_alloc(device, send);
        there.receive = device_alloc(device, receive);
        device_copy(device, there.send, NULL, t->send, send);
        device_copy(device, there.receive, NULL, t->receive, receive);
    }
    if (run_trial(&there, &error) != 0) problem(t->outcome, "%s", error.message);
    if (device) {
        device_copy(NULL, t->send, device, there.send, send);
        device_copy(NULL, t->receive, device, there.receive, receive);
        device_free(device, there.send, send);
        device_free(device, there.receive, receive);
    }
    if (error.status == STATUS_OK) check(t);
    free(t->send);
    free(t->receive);
}

static void every_collective(ProcessGroup *group, Device *device, const void *argument,
                             Outcome *outcome) {
    const Where *where = argument;
    size_t world = (size_t)pg_size(group);
    size_t counts[] = {0, 1, world - 1, world, world + 1, 1009, MANY};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
        for (int kind = PG_ALL_REDUCE; kind <= PG_REDUCE_SCATTER; kind++) {
            Trial t = {.group = group,
                       .outcome = outcome,
                       .kind = (CollectiveKind)kind,
                       .type = PG_F32,
                       .op = n % 2 ? PG_SUM : PG_AVG,
                       .count = counts[n],
                       .root = (int)((n + (size_t)kind) % world),
                       .async = where->async};
            try_one(&t, where->on_device ? device : NULL);
        }
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "barrier");
}

static void test_every_collective(void **state) {
    (void)state;
    for (int world = 1; world <= gpus; world++)
        for (int w = 0; w < 4; w++) {
            Where where = {.on_device = w & 1, .async = (w & 2) != 0};
            Play play = {
                .world = world, .timeout_s = 60, .body = every_collective, .argument = &where};
            play_well(&play, NULL);
        }
}

static void every_type(ProcessGroup *group, Device *device, const void *argument,
                       Outcome *outcome) {
    (void)argument;
    for (int kind = PG_ALL_REDUCE; kind <= PG_REDUCE_SCATTER; kind++)
        for (int type = PG_F32; type <= PG_BF16; type++)
            for (int op = PG_SUM; op <= PG_MIN; op++) {
                if (op == PG_AVG && type > PG_F64) continue;
                Trial t = {.group = group,
                           .outcome = outcome,
                           .kind = (CollectiveKind)kind,
                           .type = (PgType)type,
                           .op = (ReduceOp)op,
                           .count = 503,
                           .root = pg_size(group) - 1};
                try_one(&t, op % 2 ? device : NULL);
            }
}

static void test_every_type(void **state) {
    (void)state;
    Play play = {.world = gpus, .timeout_s = 60, .body = every_type};
    play_well(&play, NULL);
}

// Sends to the next rank and receives from the previous one; even ranks send first.
static void ring(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group), world = pg_size(group);
    int next = (rank + 1) % world, before = (rank + world - 1) % world;
    float *mine = memory_zalloc(MANY * sizeof *mine), *theirs = memory_zalloc(MANY * sizeof *mine);
    for (size_t i = 0; i < MANY; i++) mine[i] = (float)rank + (float)i;
    float *out = to_device(device, mine, MANY), *in = to_device(device, theirs, MANY);
    Collective send = pg_send(out, MANY, PG_F32, next), receive = pg_recv(in, MANY, PG_F32, before);
    bool fine =
        ok(pg_run(group, rank % 2 ? receive : send, &outcome->error), &outcome->error, outcome) &&
        ok(pg_run(group, rank % 2 ? send : receive, &outcome->error), &outcome->error, outcome);
    device_copy(NULL, theirs, device, in, MANY * sizeof *in);
    for (size_t i = 0; fine && i < MANY; i++)
        if (theirs[i] != (float)before + (float)i) problem(outcome, "element %zu differs", i);
    device_free(device, in, MANY * sizeof *in);
    device_free(device, out, MANY * sizeof *out);
    free(mine);
    free(theirs);
}

static void test_pairs(void **state) {
    (void)state;
    if (gpus < 2) skip();
    for (int world = 2; world <= gpus; world += 2) {
        Play play = {.world = world, .timeout_s = 60, .body = ring};
        play_well(&play, NULL);
    }
}

// ---- order of kernels and collectives -------------------------------------------------------

enum { BUCKETS = 5, BUCKET = 20011 };

// Kernels fill the buckets, each bucket is started once it is filled, kernels scale the sums: the
// host never waits for the device in between.
static void overlap(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group), world = pg_size(group);
    float *slab = pg_shared_alloc(group, BUCKETS * BUCKET * sizeof *slab, &outcome->error);
    float *host = memory_zalloc(BUCKETS * BUCKET * sizeof *host);
    if (!slab) problem(outcome, "%s", outcome->error.message);
    for (int round = 0; slab && round < 3; round++) {
        PgWork *works[BUCKETS];
        for (int b = 0; b < BUCKETS; b++) {
            float *bucket = slab + b * BUCKET;
            device_kernels(device)->elementwise->fill(bucket, (float)(rank + b + round), BUCKET);
            works[b] =
                pg_start(group, pg_all_reduce(bucket, BUCKET, PG_F32, PG_SUM), &outcome->error);
        }
        for (int b = 0; b < BUCKETS; b++) {
            int status = works[b] ? pg_work_wait(works[b], NULL, NULL, &outcome->error) : -1;
            ok(status, &outcome->error, outcome);
            device_kernels(device)->elementwise->scale(slab + b * BUCKET, 2, BUCKET);
        }
        device_copy(NULL, host, device, slab, BUCKETS * BUCKET * sizeof *slab);
        for (int i = 0; i < BUCKETS * BUCKET; i++) {
            int sum = world * (i / BUCKET + round) + world * (world - 1) / 2;
            if (host[i] != (float)(2 * sum)) problem(outcome, "round %d: element %d", round, i);
        }
    }
    free(host);
}

static void test_overlap(void **state) {
    (void)state;
    for (int world = 1; world <= gpus; world++) {
        Play play = {.world = world, .timeout_s = 60, .body = overlap};
        play_well(&play, NULL);
    }
}

// Sums of values that round have the same bits on all ranks.
static void same_bits(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument;
    size_t count = 4001, world = (size_t)pg_size(group);
    float *host = memory_zalloc(world * count * sizeof *host);
    for (size_t i = 0; i < count; i++)
        host[i] = (float)(i + 1) / (float)(3 + pg_rank(group)) * (pg_rank(group) % 2 ? 1e4f : 1);
    float *x = to_device(device, host, count);
    if (ok(pg_run(group, pg_all_reduce(x, count, PG_F32, PG_AVG), &outcome->error), &outcome->error,
           outcome) &&
        ok(pg_run(group, pg_all_gather(x, host, count, PG_F32), &outcome->error), &outcome->error,
           outcome))
        for (size_t r = 1; r < world; r++)
            if (memcmp(host, host + r * count, count * sizeof *host) != 0)
                problem(outcome, "rank %zu has other bits than rank 0", r);
    device_free(device, x, count * sizeof *x);
    free(host);
}

static void test_same_bits(void **state) {
    (void)state;
    Play play = {.world = gpus, .timeout_s = 60, .body = same_bits};
    play_well(&play, NULL);
}

// ---- DistributedDataParallel ----------------------------------------------------------------

static const OptimizerConfig SGD = {.kind = OPTIMIZER_SGD, .momentum = 0.9};

static void compare_parameters(ProcessGroup *group, Module *model, Outcome *outcome) {
    NamedTensors parameters = module_tensors(model, MODULE_STATE);
    size_t world = (size_t)pg_size(group);
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        size_t bytes = tensor_bytes(tensor);
        char *all = memory_zalloc(world * bytes);
        ok(pg_run(group, pg_all_gather(tensor->data, all, bytes, PG_U8), &outcome->error),
           &outcome->error, outcome);
        for (size_t r = 1; r < world; r++)
            if (memcmp(all, all + r * bytes, bytes) != 0)
                problem(outcome, "rank %zu: %s differs", r, parameters.items[i].name);
        free(all);
    }
    named_tensors_free(&parameters);
}

// Ranks start with different weights and have different data; small buckets, so that many are in
// flight.
static void train(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    int rank = pg_rank(group);
    Error *err = &outcome->error;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.01;
    Module *model = test_model(argument, 5 + (uint64_t)rank, device);
    Module *wrapper = distributed_data_parallel(model, group, &config, err);
    if (!wrapper) {
        problem(outcome, "%s", err->message);
        return;
    }
    Tape *tape = tape_create(device, NULL);
    Optimizer *optimizer = optimizer_create(model, &SGD);
    for (int step = 0; step < 4; step++) {
        module_zero_grad(model);
        ok(test_backward(tape, wrapper, rank, step, 4, 4, err), err, outcome);
        ok(ddp_finish_backward(wrapper, NULL, err), err, outcome);
        optimizer_step(optimizer, 0.1);
    }
    ok(ddp_sync_buffers(wrapper, 0, err), err, outcome);
    compare_parameters(group, model, outcome);
    optimizer_close(optimizer);
    tape_close(tape);
    module_close(wrapper);
}

static void test_training(void **state) {
    (void)state;
    const char *models[] = {"wide", "convnet"};
    for (int world = 1; world <= gpus; world++)
        for (int m = 0; m < 2; m++) {
            Play play = {.world = world, .timeout_s = 60, .body = train, .argument = models[m]};
            play_well(&play, NULL);
        }
}

// ---- graphs ---------------------------------------------------------------------------------

static void record_and_replay(ProcessGroup *group, Device *device, const void *argument,
                              Outcome *outcome) {
    (void)argument;
    size_t count = 3001;
    int world = pg_size(group);
    float *x = device_alloc(device, count * sizeof *x), *host = memory_zalloc(count * sizeof *x);
    Error *err = &outcome->error;
    device_kernels(device)->elementwise->fill(x, 1, count);
    if (!ok(device_graph_begin(device, err), err, outcome)) return;
    device_kernels(device)->elementwise->scale(x, 2, count);
    PgWork *work = pg_start(group, pg_all_reduce(x, count, PG_F32, PG_AVG), err);
    ok(work ? pg_work_wait(work, NULL, NULL, err) : -1, err, outcome);
    PgWork *again = pg_start(group, pg_all_reduce(x, count, PG_F32, PG_SUM), err);
    ok(again ? pg_work_wait(again, NULL, NULL, err) : -1, err, outcome);
    device_kernels(device)->elementwise->scale(x, 0.5f, count);
    DeviceGraph *graph = device_graph_end(device, err);
    if (!graph) problem(outcome, "%s", err->message);
    double expected = 1;
    for (int replay = 0; graph && replay < 3; replay++) {
        device_graph_launch(device, graph);
        expected *= world;
        device_copy(NULL, host, device, x, count * sizeof *x);
        for (size_t i = 0; i < count; i++)
            if (fabs((double)host[i] - expected) > 1e-4 * expected)
                problem(outcome, "replay %d: %g, not %g", replay, (double)host[i], expected);
    }
    ok(pg_run(group, pg_all_reduce(x, count, PG_F32, PG_SUM), err), err, outcome);
    device_synchronize(device);
    if (graph) device_graph_close(device, graph);
    device_free(device, x, count * sizeof *x);
    free(host);
}

static void test_graph(void **state) {
    (void)state;
    for (int world = 1; world <= gpus; world += 2) {
        Play play = {.world = world, .timeout_s = 60, .body = record_and_replay};
        play_well(&play, NULL);
    }
}

static void record_host_buffer(ProcessGroup *group, Device *device, const void *argument,
                               Outcome *outcome) {
    (void)argument;
    double value = 1, all = 0; // not in place: one rank alone must copy
    Error ignored = {0};
    if (!ok(device_graph_begin(device, &outcome->error), &outcome->error, outcome)) return;
    if (pg_run(group, pg_all_gather(&value, &all, 1, PG_F64), &outcome->error) == 0)
        problem(outcome, "a host buffer was recorded");
    device_graph_close(device, device_graph_end(device, &ignored));
}

static void test_graph_refuses_host_buffers(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    Play play = {.world = 1, .timeout_s = 60, .body = record_host_buffer};
    play_well(&play, outcomes);
    assert_non_null(
        strstr(outcomes[0].error.message, "all_gather(F64, 1) cannot be recorded into a graph"));
}

// ---- groups within the group ----------------------------------------------------------------

static void halves(ProcessGroup *group, Device *device, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group), world = pg_size(group);
    Error *err = &outcome->error;
    ProcessGroup *half = pg_split(group, rank % 2, err);
    if (!half) {
        problem(outcome, "%s", err->message);
        return;
    }
    float mine = (float)(rank + 1), sum = 0;
    for (int r = rank % 2; r < world; r += 2) sum += (float)(r + 1);
    float *x = to_device(device, &mine, 1);
    for (int round = 0; round < 3; round++) { // collectives of both groups in flight
        PgWork *inner = pg_start(half, pg_all_reduce(x, 1, PG_F32, PG_MAX), err);
        double all = rank;
        ok(pg_run(group, pg_all_reduce(&all, 1, PG_F64, PG_SUM), err), err, outcome);
        ok(inner ? pg_work_wait(inner, NULL, NULL, err) : -1, err, outcome);
        if (all != world * (world - 1) / 2.0) problem(outcome, "the world's sum is %g", all);
    }
    device_copy(device, x, NULL, &mine, sizeof mine);
    ok(pg_run(half, pg_all_reduce(x, 1, PG_F32, PG_SUM), err), err, outcome);
    device_copy(NULL, &mine, device, x, sizeof mine);
    if (mine != sum) problem(outcome, "the half's sum is %g, not %g", (double)mine, (double)sum);
    if (strcmp(pg_backend(half), "nccl") != 0) problem(outcome, "backend %s", pg_backend(half));
    const char *connects = getenv("NCCL_RUNTIME_CONNECT"); // 0: connect at opening
    if (!connects || strcmp(connects, "0") != 0)
        problem(outcome, "connects in the first collective");
    device_free(device, x, sizeof *x);
    pg_close(half);
}

static void test_subgroups(void **state) {
    (void)state;
    if (gpus < 2) skip();
    for (int world = 2; world <= gpus; world++) {
        Play play = {.world = world, .timeout_s = 60, .body = halves};
        play_well(&play, NULL);
    }
}

// ---- the program --------------------------------------------------------------------------

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_collective),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_graph_refuses_host_buffers),
        cmocka_unit_test(test_subgroups),
    };
    gpus = find_gpus();
    return gpus > 0 ? cmocka_run_group_tests(tests, NULL, NULL) : STATUS_SKIPPED;
}
