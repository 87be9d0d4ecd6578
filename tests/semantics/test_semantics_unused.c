/* test_semantics_unused.c: parameters without a gradient in some backwards, by rows of PyTorch's
 * own tests (tests/semantics.md): find_unused_parameters with its map of used parameters, static
 * graph, and the error without either. A toy task's gradient is factor / 4.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/nn/tuple.h"
#include "ddp/reducer.h"

static RigConfig find_unused(void) {
    RigConfig config = rig_config_default();
    config.find_unused_parameters = true;
    return config;
}

static RigConfig fixed_graph(void) {
    RigConfig config = rig_config_default();
    config.static_graph = true;
    return config;
}

// ---- row 42: without and with -----------------------------------------------------------------

static void without_and_with(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = rig_config_default();
    rig_wrap_with(rig, toy_model(rig->device, 3, 1), &config);
    EXPECT(toy_step(rig, (float[]){1, 0, 1}, &outcome->error) != 0);
    rig_wrap_with(rig, ddp_unwrap(rig->wrapper),
                  &(RigConfig){.find_unused_parameters = true, .gradients_beside_buckets = true});
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){1, 0, 1});
        EXPECT(grad_is(rig, 0, 0.25f) && grad_is_none(rig, 1) && grad_is(rig, 2, 0.25f));
    }
    rig_close(rig);
}

static void row_42_find_unused_parameters_kwarg(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    for (int world = 1; world <= 3; world++) {
        play_both(world, without_and_with, NULL, outcomes);
        for (int r = 0; r < world; r++) {
            char named[100];
            snprintf(named, sizeof named, "did not receive grad for rank %d: task1.p", r);
            check_message(&outcomes[r].error, "Expected to have finished reduction in the prior");
            check_message(&outcomes[r].error, named);
            assert_null(strstr(outcomes[r].error.message, "task0"));
        }
    }
}

// ---- row 43: unused by one rank, unused by all ------------------------------------------------

static void local_and_global(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const RigConfig *config = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    rig_wrap_with(rig, toy_model(rig->device, 3, 1), config);
    // Task 1: rank 0 only. Task 2: no rank.
    const float factors[] = {4, rig->rank == 0 ? 8 : 0, 0};
    float average = config->ddp.global_normalization ? 1 : 1 / (float)rig->world;
    float all = 4.0f / 4 * (float)rig->world * average;
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig->model);
        toy_train(rig, factors);
        EXPECT(grad_is(rig, 0, all) && grad_is(rig, 1, 2 * average) && grad_is_none(rig, 2));
    }
    // A gradient of a parameter that no rank uses keeps its local value.
    Tensor *unused = rig_parameter(rig, 2);
    rig->device->kernels->elementwise->fill(unused->grad, (float)rig->rank + 0.5f, 4);
    unused->has_grad = true;
    rig_parameter(rig, 0)->has_grad = rig_parameter(rig, 1)->has_grad = false;
    toy_train(rig, factors);
    EXPECT(grad_is(rig, 2, (float)rig->rank + 0.5f) && grad_is(rig, 1, 2 * average));
    // It is averaged as soon as one rank uses the parameter.
    rig_parameter(rig, 0)->has_grad = rig_parameter(rig, 1)->has_grad = false;
    if (!config->static_graph) {
        toy_train(rig, (float[]){4, 4, rig->rank == 0 ? 4 : 0});
        float sum = 1 + 0.5f * (float)(rig->world * rig->world);
        EXPECT(fabsf(unused->grad[3] - sum * average) < 1e-6f && grad_is(rig, 1, all));
    }
    EXPECT(ddp_reducer(rig->wrapper)->rebuilt == config->static_graph);
    rig_close(rig);
}

static void row_43_global_local_unused_params_grad(void **state) {
    (void)state;
    for (int global = 0; global <= 1; global++)
        for (int overlap = 0; overlap <= 1; overlap++)
            for (double cap = -1; cap <= 0; cap++) {
                RigConfig config = find_unused();
                config.ddp.global_normalization = global;
                config.ddp.overlap = overlap;
                config.ddp.bucket_cap_mb = cap;
                for (int world = 2; world <= 4; world += 2)
                    play_both(world, local_and_global, &config, NULL);
            }
}

static void row_49_static_graph_finds_the_same(void **state) {
    (void)state;
    for (int global = 0; global <= 1; global++)
        for (double cap = -1; cap <= 0; cap++) {
            RigConfig config = fixed_graph();
            config.ddp.global_normalization = global;
            config.ddp.bucket_cap_mb = cap;
            play_both(2, local_and_global, &config, NULL);
        }
}

// A rank whose loss depends on no parameter runs no backward, but takes part in the reduction.
static void nothing_used(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const RigConfig config = find_unused();
    rig_wrap_with(rig, toy_model(rig->device, 2, 1), &config);
    for (int step = 0; step < 3; step++) {
        Error err = {0};
        module_zero_grad(rig->model);
        if (rig->rank == 0) {
            toy_train(rig, (float[]){8, 0});
        } else {
            tape_reset(rig->tape);
            Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, (float[]){0, 0});
            module_forward(rig->wrapper, rig->tape, x);
            EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        }
        EXPECT(grad_is(rig, 0, 1) && grad_is_none(rig, 1));
    }
    rig_close(rig);
}

static void row_43_rank_that_uses_nothing(void **state) {
    (void)state;
    play_both(2, nothing_used, NULL, NULL);
}

// ---- row 44: control flow ---------------------------------------------------------------------

// The used tasks change from step to step, equally on all ranks or not: each task is unused in some
// step. Each begins as if a backward had failed, which leaves uses behind.
static void control_flow(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool same = *(const bool *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const RigConfig config = find_unused();
    rig_wrap_with(rig, toy_model(rig->device, 3, 1), &config);
    for (int step = 0; step < 6; step++) {
        const int always = step % 3, one = (step + 1) % 3, other = (step + 2) % 3;
        const bool swap = !same && rig->rank == 1;
        float factors[3] = {0};
        module_zero_grad(rig->model);
        for (int task = 0; task < 3; task++) rig_parameter(rig, task)->pending_uses = 1;
        factors[always] = 4;
        factors[swap ? other : one] = 8;
        toy_train(rig, factors);
        EXPECT(grad_is(rig, always, 1));
        EXPECT(grad_is(rig, one, same ? 2 : 1)); // used by one of two ranks
        EXPECT(same ? grad_is_none(rig, other) : grad_is(rig, other, 1));
    }
    rig_close(rig);
}

static void row_44_control_flow_same_and_different(void **state) {
    (void)state;
    for (int same = 0; same <= 1; same++) {
        bool argument = same;
        play_both(2, control_flow, &argument, NULL);
    }
}

// ---- row 45: an output that the loss does not use ---------------------------------------------

// (mean of task 0, (mean of task 1)): each forward computes both.
static Tensor *two_outputs_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *means[2];
    for (int k = 0; k < 2; k++)
        means[k] = op_toy_mean(tape, &self->children[k]->parameters[0].tensor, tensor_f32(x)[k]);
    Tensor *inner = tuple_create(tape, &means[1], 1);
    return tuple_create(tape, (Tensor *[]){means[0], inner}, 2);
}

// The loss of an odd step uses both outputs, that of an even step only output `used`.
static int output_step(Rig *rig, int step, int used, Error *err) {
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, (float[]){4, 8});
    Tensor *y = module_forward(rig->wrapper, rig->tape, x);
    if (tape_error(rig->tape, err) != 0) return -1;
    Tensor *outputs[] = {y->items[0], y->items[1]->items[0]};
    Tensor *loss = step % 2 ? op_add(rig->tape, outputs[0], outputs[1]) : outputs[used];
    if (tape_backward(rig->tape, loss, err) != 0) return -1;
    return ddp_finish_backward(rig->wrapper, NULL, err);
}

static void output_unused(ProcessGroup *group, const void *argument, Outcome *outcome) {
    int used = *(const int *)argument; // the output in the loss
    Rig self = rig_open(group, outcome), *rig = &self;
    const RigConfig find = find_unused(), plain = rig_config_default();
    Module *model = toy_model(rig->device, 2, 1);
    model->forward = two_outputs_forward;
    rig_wrap_with(rig, model, &find);
    for (int step = 0; step < 6; step++) {
        Error err = {0};
        EXPECT(output_step(rig, step, used, &err) == 0);
        for (int task = 0; task < 2; task++) {
            bool is_used = step % 2 || task == used;
            EXPECT(is_used ? grad_is(rig, task, (float)task + 1) : grad_is_none(rig, task));
        }
    }
    rig_wrap_with(rig, ddp_unwrap(rig->wrapper),
                  &plain); // without find_unused_parameters the error names the unused parameter
    EXPECT(output_step(rig, 0, used, &outcome->error) != 0);
    EXPECT(strstr(outcome->error.message, used ? ": task0.p" : ": task1.p"));
    rig_close(rig);
}

static void row_45_output_unused_in_loss(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    for (int used = 0; used < 2; used++) play_both(2, output_unused, &used, outcomes);
}

// ---- rows 44, 35: the map of used parameters under no_sync ------------------------------------

static void used_under_no_sync(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const RigConfig config = find_unused();
    rig_wrap_with(rig, toy_model(rig->device, 3, 1), &config);
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig->model);
        bool before = ddp_no_sync_begin(rig->wrapper);
        toy_train(rig, (float[]){4, rig->rank == 0 ? 8 : 0, 0});
        ddp_no_sync_end(rig->wrapper, before);
        toy_train(rig, (float[]){4, 0, 0});
        EXPECT(grad_is(rig, 0, 2) && grad_is(rig, 1, 1) && grad_is_none(rig, 2));
    }
    rig_close(rig);
}

static void row_44_used_map_accumulates_under_no_sync(void **state) {
    (void)state;
    play_both(2, used_under_no_sync, NULL, NULL);
}

// ---- row 47: rebuilding and unused parameters -------------------------------------------------

static void first_all_then_fewer(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = rig_config_default();
    rig_wrap_with(rig, toy_model(rig->device, 3, 1), &config);
    toy_train(rig, (float[]){1, 1, 1});
    module_zero_grad(rig->model);
    Error backward = {0}, again = {0};
    EXPECT(toy_step(rig, (float[]){1, 1, 0}, &backward) != 0); // after the buckets were rebuilt
    EXPECT(strstr(backward.message, "task2.p") && ddp_reducer(rig->wrapper)->rebuilt);
    // PyTorch reports the error at the next forward; here the next forward repeats it.
    EXPECT(toy_step(rig, (float[]){1, 1, 1}, &again) != 0);
    EXPECT(strstr(again.message, "Expected to have finished reduction"));
    rig_close(rig);
}

static void row_47_unused_params_rebuild_buckets_exception(void **state) {
    (void)state;
    play_both(2, first_all_then_fewer, NULL, NULL);
}

// ---- row 48: shared weights and unused ones ---------------------------------------------------

// Task 0's parameter is used twice in one forward; task 1 not at all.
static Tensor *shared_toy_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *p = &self->children[0]->parameters[0].tensor;
    return op_add(tape, op_toy_mean(tape, p, tensor_f32(x)[0]), op_toy_mean(tape, p, 4));
}

static void shared_weights(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const RigConfig *config = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Module *model = toy_model(rig->device, 2, 1);
    model->forward = shared_toy_forward;
    rig_wrap_with(rig, model, config);
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){(float)rig->rank * 8, 0});
        EXPECT(grad_is(rig, 0, 2) && grad_is_none(rig, 1)); // mean of 1 and 3
    }
    rig_close(rig);
}

static void row_48_shared_grad_acc_unused_params(void **state) {
    (void)state;
    const RigConfig configs[] = {find_unused(), fixed_graph()};
    for (int i = 0; i < 2; i++) play_both(2, shared_weights, &configs[i], NULL);
}

// ---- rows 49 to 51: static graph --------------------------------------------------------------

static void different_graphs(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const RigConfig *config = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    rig_wrap_with(rig, toy_model(rig->device, 4, 1), config);
    float factors[4] = {4, 0, 0, 0};
    factors[1 + rig->rank] = 4.0f * (float)rig->world; // each rank uses another task
    for (int step = 0; step < 4; step++) {
        module_zero_grad(rig->model);
        toy_train(rig, factors);
        EXPECT(grad_is(rig, 0, 1));
        for (int task = 1; task <= rig->world; task++) EXPECT(grad_is(rig, task, 1));
        if (rig->world < 3) EXPECT(grad_is_none(rig, 3));
    }
    EXPECT(ddp_reducer(rig->wrapper)->rebuilt == config->static_graph);
    rig_close(rig);
}

static void row_49_different_graph_across_ranks(void **state) {
    (void)state;
    const RigConfig configs[] = {find_unused(), fixed_graph()};
    for (int i = 0; i < 2; i++)
        for (int world = 2; world <= 3; world++)
            play_both(world, different_graphs, &configs[i], NULL);
}

typedef struct Change {
    float first[3], then[3];
    const char *parameter, *how;
} Change;

static void change_graph(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Change *change = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const RigConfig config = fixed_graph();
    rig_wrap_with(rig, toy_model(rig->device, 3, 1), &config);
    toy_train(rig, change->first);
    module_zero_grad(rig->model);
    toy_train(rig, change->first);
    module_zero_grad(rig->model);
    EXPECT(toy_step(rig, change->then, &outcome->error) != 0);
    EXPECT(strstr(outcome->error.message, change->parameter));
    EXPECT(strstr(outcome->error.message, change->how));
    rig_close(rig);
}

static void row_50_invalid_static_graph(void **state) {
    (void)state;
    static const Change changes[] = {
        {{1, 0, 1}, {1, 1, 1}, "task1.p", "less often"},
        {{1, 1, 1}, {1, 1, 0}, "task2.p", "more often"},
    };
    for (int i = 0; i < 2; i++) {
        Outcome outcomes[RANKS_MAX];
        play_both(2, change_graph, &changes[i], outcomes);
        for (int r = 0; r < 2; r++) {
            check_message(&outcomes[r].error,
                          "Your training graph has changed in this iteration, e.g., one parameter "
                          "is unused in first iteration, but then got used in the second");
            check_message(&outcomes[r].error, r == 0 ? "Rank 0" : "Rank 1");
        }
    }
}

// Two forwards, two backwards, one reduction: each gradient is completed twice. Without a static
// graph that is an error; a static graph counts the contributions.
static void two_backwards(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const RigConfig *config = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    rig_wrap_with(rig, toy_model(rig->device, 2, 1), config);
    for (int step = 0; step < 3; step++) {
        Error err = {0};
        module_zero_grad(rig->model);
        tape_reset(rig->tape);
        Tensor *loss[2];
        const float factors[] = {4 * (float)(rig->rank + 1), 8}; // task 0's gradient: rank + 1
        for (int i = 0; i < 2; i++) {
            Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, factors);
            loss[i] = module_forward(rig->wrapper, rig->tape, x);
        }
        uint64_t calls = pg_sequence(group);
        EXPECT(tape_backward(rig->tape, loss[0], &err) == 0);
        if (config->static_graph) EXPECT(pg_sequence(group) == calls); // no gradient is ready yet
        EXPECT(tape_backward(rig->tape, loss[1], &err) == 0);
        if (ddp_finish_backward(rig->wrapper, NULL, &outcome->error) != 0) break;
        EXPECT(grad_is(rig, 0, 3) && grad_is(rig, 1, 4));
    }
    rig_close(rig);
}

static void row_51_static_graph_multi_forward(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    RigConfig config = fixed_graph();
    play_both(2, two_backwards, &config, outcomes);
    for (int r = 0; r < 2; r++) CHECK_OK(outcomes[r].error.status == STATUS_OK, outcomes[r].error);
    config.static_graph = false;
    config.ddp.overlap = false; // else the second backward would write to a bucket in flight
    play_both(2, two_backwards, &config, outcomes);
    check_message(&outcomes[0].error, "Expected to mark a variable ready only once");
}

// ---- row 34: a backward from each output, with find_unused_parameters --------------------------

// The first backward marks task 1 as unused. Without overlap no bucket is in flight while the
// second backward writes task 1's gradient.
static void backward_from_each(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = find_unused();
    config.ddp.overlap = false;
    Error err = {0};
    Module *model = toy_model(rig->device, 2, 1);
    model->forward = two_outputs_forward;
    rig_wrap_with(rig, model, &config);
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, (float[]){4, 8});
    Tensor *y = module_forward(rig->wrapper, rig->tape, x);
    EXPECT(tape_backward(rig->tape, y->items[0], &err) == 0);
    EXPECT(tape_backward(rig->tape, y->items[1]->items[0], &err) == 0);
    EXPECT(ddp_finish_backward(rig->wrapper, NULL, &outcome->error) != 0);
    rig_close(rig);
}

static void row_34_a_backward_from_each_with_find_unused(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_both(2, backward_from_each, NULL, outcomes);
    for (int r = 0; r < 2; r++) {
        const Error *err = &outcomes[r].error;
        check_message(err, "Expected to mark a variable ready only once.");
        check_message(err, "Parameter at index 1 with name task1.p was marked ready as unused");
        assert_null(strstr(err->message, "task0"));
    }
}

// ---- row 46: momentum, as in one process ------------------------------------------------------

static void momentum(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD, .momentum = 0.5};
    float weights[2][8];
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        Rig self = rig_open(group, outcome), *rig = &self;
        const RigConfig config = find_unused();
        rig->model = toy_model(rig->device, 2, 1);
        if (wrapped) rig_wrap_with(rig, rig->model, &config);
        Optimizer *optimizer = optimizer_create(rig->model, &sgd);
        for (int step = 0; step < 6; step++) {
            Error err = {0};
            module_zero_grad(rig->model);
            const float factors[] = {1, step % 3 == 0 ? 1 : 0};
            Module *module = wrapped ? rig->wrapper : rig->model;
            EXPECT(toy_backward(rig, module, factors, &err) == 0);
            if (wrapped) EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
            optimizer_step(optimizer, 0.1); // skips task 1 if its gradient is None
        }
        for (int task = 0; task < 2; task++)
            memcpy(&weights[wrapped][4 * task], rig_parameter(rig, task)->data, 4 * sizeof(float));
        optimizer_close(optimizer);
        rig_close(rig);
    }
    if (memcmp(weights[0], weights[1], sizeof weights[0]) != 0)
        problem(outcome, "%g %g", (double)weights[0][4], (double)weights[1][4]);
}

static void row_46_undefined_grad_parity(void **state) {
    (void)state;
    play_both(2, momentum, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_34_a_backward_from_each_with_find_unused),
        cmocka_unit_test(row_42_find_unused_parameters_kwarg),
        cmocka_unit_test(row_43_global_local_unused_params_grad),
        cmocka_unit_test(row_43_rank_that_uses_nothing),
        cmocka_unit_test(row_44_control_flow_same_and_different),
        cmocka_unit_test(row_44_used_map_accumulates_under_no_sync),
        cmocka_unit_test(row_45_output_unused_in_loss),
        cmocka_unit_test(row_46_undefined_grad_parity),
        cmocka_unit_test(row_47_unused_params_rebuild_buckets_exception),
        cmocka_unit_test(row_48_shared_grad_acc_unused_params),
        cmocka_unit_test(row_49_static_graph_finds_the_same),
        cmocka_unit_test(row_49_different_graph_across_ranks),
        cmocka_unit_test(row_50_invalid_static_graph),
        cmocka_unit_test(row_51_static_graph_multi_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
