/* test_semantics_join.c: Join, by rows of PyTorch's own tests (tests/semantics.md): uneven inputs
 * with both divisors, several models and intervals of synchronisation, against local training;
 * early termination; several joinables.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "ddp/features/comm_hooks.h"
#include "ddp/features/join_ddp.h"
#include "ddp/features/logging_data.h"
#include "ddp/features/sync_batch_norm.h"
#include "ddp/reducer.h"

static Join *open_join(Rig *rig, const JoinConfig *config) {
    Joinable joinable = ddp_joinable(rig->wrapper);
    Join *join = join_open(&joinable, 1, config, &rig->outcome->error);
    CHECK(join, "%s", rig->outcome->error.message);
    return join;
}

static void end_join(Rig *rig, Join *join) {
    if (join_end(join, &rig->outcome->error) != 0)
        problem(rig->outcome, "%s", rig->outcome->error.message);
}

// ---- row 75: both divisors --------------------------------------------------------------------

typedef struct Division {
    bool by_active, global; // global: global normalisation, sums that Join must not divide
} Division;

static void divide(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Division *how = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.global_normalization = how->global;
    const JoinConfig join_config = {.divide_by_active_ranks = how->by_active};
    rig_wrap(rig, matrix_model(rig->device, 5, 5, 0), &config);
    const CommHook *hook = &ddp_reducer(rig->wrapper)->hook;
    Join *join = open_join(rig, &join_config);
    Error err = {0};
    EXPECT(how->by_active == (hook->name != NULL)); // Join's own hook divides
    for (int i = 0; i < (rig->rank > 0 ? 7 : 5); i++) {
        module_zero_grad(rig->model);
        if (matrix_backward(rig, rig->wrapper, 1, 5, 50, 1, &err) != 0 ||
            ddp_finish_backward(rig->wrapper, NULL, &err) != 0)
            problem(outcome, "%s", err.message);
        int active = i < 5 ? rig->world : rig->world - 1;
        EXPECT(join_divisor(join) == (how->by_active ? active : 0));
        float divisor = how->global ? 1 : (float)(how->by_active ? active : rig->world);
        float expected = 50.0f * (float)active / divisor;
        const float *grad = rig->model->parameters[0].tensor.grad;
        for (int e = 0; e < 25; e++) EXPECT(fabsf(grad[e] - expected) < 1e-4f);
    }
    end_join(rig, join);
    EXPECT(!hook->name);
    rig_close(rig);
}

static void row_75_ddp_grad_div_uneven_inputs(void **state) {
    (void)state;
    for (int by_active = 0; by_active <= 1; by_active++)
        for (int global = 0; global <= 1; global++)
            for (int world = 2; world <= 4; world++) {
                const Division how = {by_active, global};
                play_both(world, divide, &how, NULL);
            }
}

// ---- row 76: equality with local iterations ---------------------------------------------------

static float step_weights(Rig *rig, Module *module, Optimizer *optimizer, double lr) {
    Error err = {0};
    module_zero_grad(rig->model);
    if (matrix_backward(rig, module, 3, 10, 0.25f, 1, &err) != 0 ||
        (rig->wrapper && ddp_finish_backward(rig->wrapper, NULL, &err) != 0))
        problem(rig->outcome, "%s", err.message);
    optimizer_step(optimizer, lr);
    return tensor_f32(&rig->model->parameters[0].tensor)[99];
}

static void equivalence(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD};
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.disable = false};
    Rig self = rig_open(group, outcome), *rig = &self;
    float local = 0;
    rig->model = matrix_model(rig->device, 10, 10, 0.5f);
    Optimizer *optimizer = optimizer_create(rig->model, &sgd);
    for (int i = 0; i < rig->world * (rig->world + 1); i++) // 2 + 4 + 6 + ...
        local = step_weights(rig, rig->model, optimizer, 0.03);
    optimizer_close(optimizer);
    module_close(rig->model);

    rig_wrap(rig, matrix_model(rig->device, 10, 10, 0.5f), &config);
    optimizer = optimizer_create(rig->model, &sgd);
    Join *join = open_join(rig, &join_config);
    for (int i = 0; i < 2 * (rig->rank + 1); i++)
        step_weights(rig, rig->wrapper, optimizer, 0.03 * rig->world);
    end_join(rig, join);
    const float *weight = tensor_f32(&rig->model->parameters[0].tensor);
    for (int i = 0; i < 100; i++) EXPECT(fabsf(weight[i] - local) < 1e-5f + 1.3e-6f * fabsf(local));
    optimizer_close(optimizer);
    rig_close(rig);
}

static void row_76_ddp_join_model_equivalence(void **state) {
    (void)state;
    for (int world = 1; world <= 5; world++) play_both(world, equivalence, NULL, NULL);
}

// ---- row 77: models, offsets, intervals of synchronisation ------------------------------------

typedef struct Uneven {
    const char *model;
    int base, offset, interval; // rank r runs base + r * offset iterations, reduces every interval
    bool find_unused, static_graph;
} Uneven;

// All parameters and buffers, concatenated.
static char *state_of(Module *model, size_t *bytes) {
    NamedTensors tensors = module_tensors(model, MODULE_STATE);
    char *all = NULL;
    *bytes = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const Tensor *tensor = tensors.items[i].tensor;
        all = memory_grow(all, *bytes + tensor_bytes(tensor), 1);
        memcpy(all + *bytes, tensor->data, tensor_bytes(tensor));
        *bytes += tensor_bytes(tensor);
    }
    named_tensors_free(&tensors);
    return all;
}

static int uneven_step(Rig *rig, const Uneven *how, int i, Error *err) {
    if (strcmp(how->model, "toy") != 0)
        return test_backward(rig->tape, rig->wrapper, rig->rank, i, 3, 3, err);
    // Task 2 is used by no rank; task 1 in every second iteration, or in each with a static graph.
    const float factors[] = {1, how->static_graph || (i + rig->rank) % 2 ? 2 : 0, 0};
    return toy_backward(rig, rig->wrapper, factors, err);
}

static void train_uneven(Rig *rig, const Uneven *how) {
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD, .momentum = 0.9};
    Optimizer *optimizer = optimizer_create(rig->model, &sgd);
    Error err = {0};
    for (int i = 0; i < how->base + rig->rank * how->offset; i++) {
        bool reduce = (i + 1) % how->interval == 0;
        bool before = reduce ? false : ddp_no_sync_begin(rig->wrapper);
        if (uneven_step(rig, how, i, &err) != 0 ||
            ddp_finish_backward(rig->wrapper, NULL, &err) != 0)
            problem(rig->outcome, "%s, iteration %d: %s", how->model, i, err.message);
        if (!reduce) ddp_no_sync_end(rig->wrapper, before);
        if (!reduce) continue;
        optimizer_step(optimizer, 0.01);
        module_zero_grad(rig->model);
    }
    optimizer_close(optimizer);
}

static void uneven(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Uneven *how = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = {.ddp = ddp_config_default(),
                        .find_unused_parameters = how->find_unused,
                        .static_graph = how->static_graph,
                        .gradients_beside_buckets = how->interval == 2};
    config.ddp.bucket_cap_mb = 0.001;
    const JoinConfig join_config = {.disable = false};
    bool hook = strcmp(how->model, "hook") == 0, toy = strcmp(how->model, "toy") == 0;
    rig_wrap_with(rig,
                  toy ? toy_model(rig->device, 3, 1)
                      : test_model(hook ? "mlp" : how->model, 4, rig->device),
                  &config);
    if (hook) ddp_register_comm_hook(rig->wrapper, comm_hook_compress(group, PG_F16), NULL);
    Join *join = open_join(rig, &join_config);
    EXPECT(reducer_find_iteration(ddp_reducer(rig->wrapper), "join"));
    EXPECT(ddp_logging_data(rig->wrapper).join_uneven_inputs);
    train_uneven(rig, how);
    size_t bytes;
    char *mine = state_of(rig->model, &bytes);
    end_join(rig, join);
    EXPECT(!reducer_find_iteration(ddp_reducer(rig->wrapper), "join"));
    EXPECT(!ddp_logging_data(rig->wrapper).join_uneven_inputs);
    char *after = state_of(rig->model, &bytes), *last = state_of(rig->model, &bytes);
    if (rig->rank == rig->world - 1) EXPECT(memcmp(mine, after, bytes) == 0); // the last to join
    EXPECT(pg_run(group, pg_broadcast(last, bytes, PG_U8, rig->world - 1), NULL) == 0);
    EXPECT(memcmp(last, after, bytes) == 0);
    if (rig->rank == 0 && how->base + how->offset > 0 && how->interval == 1)
        EXPECT(memcmp(mine, after, bytes) != 0); // ranks that joined later trained on
    if (!how->find_unused && how->base == 5) EXPECT(ddp_reducer(rig->wrapper)->rebuilt);
    free(mine);
    free(after);
    free(last);
    rig_close(rig);
}

static void row_77_ddp_uneven_inputs(void **state) {
    (void)state;
    static const char *const models[] = {"mlp", "convnet", "shared", "hook"};
    static const int offsets[] = {2, 3, 10};
    for (int base = 0; base <= 5; base += 5)
        for (int o = 0; o < 3; o++)
            for (int interval = 1; interval <= 3; interval++) {
                for (int m = 0; m < 4; m++) {
                    Uneven how = {models[m], base, offsets[o], interval, false, false};
                    play_ranks(AS_THREADS, 2 + m % 2, 60, uneven, &how, NULL);
                }
                Uneven unused = {"toy", base, offsets[o], interval, true, false};
                play_ranks(AS_THREADS, 3, 60, uneven, &unused, NULL);
                Uneven fixed = {"toy", base, offsets[o], interval, false, true};
                if (base > 0) play_ranks(AS_THREADS, 3, 60, uneven, &fixed, NULL);
            }
}

// Buffers are broadcast from the highest active rank: rank 1, which has joined, is not it.
static void buffers_of_the_active(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.disable = false};
    rig_wrap(rig, test_model("convnet", 4, rig->device), &config);
    Tensor *mean = &module_child(rig->model, "bn1")->buffers[0].tensor;
    Join *join = open_join(rig, &join_config);
    for (int i = 0; i < (rig->rank == 0 ? 4 : 1); i++) {
        Error err = {0};
        EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, i, 3, 3, &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
    }
    if (rig->rank == 1)
        rig->device->kernels->elementwise->fill(mean->data, 1000, tensor_count(mean));
    end_join(rig, join);
    for (size_t i = 0; i < tensor_count(mean); i++) EXPECT(fabsf(tensor_f32(mean)[i]) < 100);
    rig_close(rig);
}

static void row_77_buffers_of_the_highest_active_rank(void **state) {
    (void)state;
    play_both(2, buffers_of_the_active, NULL, NULL);
}

// ---- row 78: early termination ----------------------------------------------------------------

static void throw_early(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool synchronised = *(const bool *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.throw_on_early_termination = true};
    Module *model = test_model("convnet", 4, rig->device);
    if (synchronised && !sync_batch_norm_convert(model, group, &outcome->error))
        problem(outcome, "%s", outcome->error.message);
    rig_wrap(rig, model, &config);
    Join *join = open_join(rig, &join_config);
    int done = 0, wanted = rig->rank == 1 ? 3 : 6; // rank 1 ends first
    while (done < wanted) {
        if (test_backward(rig->tape, rig->wrapper, rig->rank, done, 3, 3, &outcome->error) != 0 ||
            ddp_finish_backward(rig->wrapper, NULL, &outcome->error) != 0)
            break;
        done++;
    }
    EXPECT(done == 3);
    if (done < wanted)
        join_abandon(join);
    else
        EXPECT(join_end(join, &outcome->error) != 0);
    rig_close(rig);
}

static void row_78_throw_on_early_termination(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    for (int synchronised = 0; synchronised <= 1; synchronised++) { // stop_iteration_sync_bn
        bool argument = synchronised;
        play_ranks(AS_THREADS, 3, 60, throw_early, &argument, outcomes);
        for (int r = 0; r < 3; r++)
            check_message(&outcomes[r].error,
                          r == 1 ? "Rank 1 exhausted all inputs."
                                 : "Detected at least one rank that exhausted inputs. Throwing "
                                   "across all ranks.");
    }
}

static void disabled(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.disable = true};
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Join *join = open_join(rig, &join_config);
    toy_train(rig, (float[]){1}); // builds the buckets
    module_zero_grad(rig->model);
    toy_train(rig, (float[]){1}); // rebuilds them
    uint64_t before = pg_sequence(group);
    for (int i = 0; i < 3; i++) toy_train(rig, (float[]){1});
    EXPECT(pg_sequence(group) == before + 3); // one all-reduce per step, none of Join
    end_join(rig, join);
    EXPECT(pg_sequence(group) == before + 3);
    rig_close(rig);
}

static void row_78_join_disabled(void **state) {
    (void)state;
    play_both(2, disabled, NULL, NULL);
}

// The body fails on all ranks: leaving Join starts no shadow iterations, and all ranks can
// continue.
static void error_in_body(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.disable = false};
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Join *join = open_join(rig, &join_config);
    toy_train(rig, (float[]){1});
    uint64_t before = pg_sequence(group);
    join_abandon(join);
    EXPECT(pg_sequence(group) == before);
    module_zero_grad(rig->model);
    toy_train(rig, (float[]){2});
    EXPECT(grad_is(rig, 0, 0.5f));
    rig_close(rig);
}

static void row_78_exception_in_the_body(void **state) {
    (void)state;
    play_both(2, error_in_body, NULL, NULL);
}

// After the group has broken, each communicating call of Join returns its error.
static void break_under_join(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.throw_on_early_termination = true};
    const Error cause = {.status = STATUS_FAILED, .message = "the loss is nan"};
    Error errors[6] = {{0}};
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Join *join = open_join(rig, &join_config);
    const Joinable ddp = ddp_joinable(rig->wrapper);
    if (rig->rank == 0) EXPECT(pg_abort(group, &cause));
    EXPECT(pg_run(group, pg_barrier(), &errors[0]) != 0);
    EXPECT(ddp.end(ddp.state, true, &errors[1]) != 0);
    EXPECT(ddp.mirror(ddp.state, &errors[2]) != 0);
    EXPECT(join_elect(group, true, &errors[3]) != 0);
    EXPECT(join_notify(join, rig->wrapper, &errors[4]) != 0);
    EXPECT(join_end(join, &errors[5]) != 0);
    for (int i = 0; i < 6; i++) EXPECT(strstr(errors[i].message, "rank 0: the loss is nan"));
    rig_close(rig);
}

static void row_78_a_broken_group_in_the_body(void **state) {
    (void)state;
    play_both(2, break_under_join, NULL, NULL);
}

// ---- row 79: several joinables ----------------------------------------------------------------

// PyTorch's Counter: all-reduces a one in each iteration and adds up the results.
typedef struct Counter {
    ProcessGroup *group;
    Join *join;
    int total, ends, lasts;
} Counter;

static int count(Counter *counter, int32_t one, Error *err) {
    if (pg_run(counter->group, pg_all_reduce(&one, 1, PG_I32, PG_SUM), err) != 0) return -1;
    counter->total += one;
    return 0;
}

static void counter_attach(void *state, Join *join) {
    ((Counter *)state)->join = join;
}

static int counter_shadow(void *state, Error *err) {
    return count(state, 0, err);
}

static int counter_end(void *state, bool last, Error *err) {
    Counter *counter = state;
    (void)err;
    counter->ends++;
    counter->lasts += last;
    return 0;
}

static Joinable counter_joinable(Counter *counter) {
    return (Joinable){counter, counter->group, counter_attach, counter_shadow, counter_end};
}

static void count_together(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const JoinConfig join_config = {.divide_by_active_ranks = true};
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Counter counters[2] = {{.group = group}, {.group = group}};
    const Joinable joinables[] = {counter_joinable(&counters[0]), ddp_joinable(rig->wrapper),
                                  counter_joinable(&counters[1])};
    Join *join = join_open(joinables, 3, &join_config, &outcome->error);
    Error err = {0};
    int iterations = 2 * rig->rank + 1;
    for (int i = 0; i < iterations; i++) {
        for (int c = 0; c < 2; c++) {
            const uint64_t moved = pg_moved_bytes(group);
            EXPECT(join_notify(counters[c].join, &counters[c], &err) == 0);
            const uint64_t others = c == 0 ? (uint64_t)rig->world - 1 : 0; // notified once
            EXPECT(pg_moved_bytes(group) - moved == others * sizeof(int32_t));
            EXPECT(count(&counters[c], 1, &err) == 0);
            module_zero_grad(rig->model);
            if (c == 0) toy_train(rig, (float[]){4});
        }
        EXPECT(grad_is_none(rig, 0));
    }
    end_join(rig, join);
    for (int c = 0; c < 2; c++) {
        EXPECT(counters[c].total == rig->world * rig->world); // 1 + 3 + 5 + ...
        EXPECT(counters[c].ends == 1 && counters[c].lasts == (rig->rank == rig->world - 1));
        EXPECT(!counters[c].join);
    }
    rig_close(rig);
}

static void row_79_several_joinables(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++) play_both(world, count_together, NULL, NULL);
}

static void constructor_errors(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const JoinConfig config = {.disable = false};
    Error none = {0}, several = {0};
    ProcessGroup *other = pg_new_subgroup(group, (int[]){0, 1}, 2, &outcome->error);
    Counter counters[2] = {{.group = group}, {.group = other}};
    const Joinable joinables[] = {counter_joinable(&counters[0]), counter_joinable(&counters[1])};
    EXPECT(!join_open(NULL, 0, &config, &none));
    EXPECT(strstr(none.message, "The join context manager requires at least one joinable"));
    EXPECT(!join_open(joinables, 2, &config, &several));
    EXPECT(strstr(several.message, "Using join context manager with multiple process groups"));
    pg_close(other);
    rig->model = toy_model(rig->device, 1, 1);
    rig_close(rig);
}

static void row_79_constructor_errors(void **state) {
    (void)state;
    play_both(2, constructor_errors, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_75_ddp_grad_div_uneven_inputs),
        cmocka_unit_test(row_76_ddp_join_model_equivalence),
        cmocka_unit_test(row_77_ddp_uneven_inputs),
        cmocka_unit_test(row_77_buffers_of_the_highest_active_rank),
        cmocka_unit_test(row_78_throw_on_early_termination),
        cmocka_unit_test(row_78_join_disabled),
        cmocka_unit_test(row_78_exception_in_the_body),
        cmocka_unit_test(row_78_a_broken_group_in_the_body),
        cmocka_unit_test(row_79_several_joinables),
        cmocka_unit_test(row_79_constructor_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
