/* test_own_units.c: the calls of a user's OwnFsdp and their order, around units that run twice,
 * that a forward does not use, and that have no parameters of their own; and the effect of a
 * failing call.
 */
#include "tests/rigs/check.h"

#include "common/base/format.h"
#include "common/base/profile.h"
#include "common/nn/layers.h"
#include "common/nn/ops.h"
#include "common/nn/tuple.h"
#include "ddp/fsdp/own/own_units.h"

enum { ROWS = 2, WIDTH = 3, UNITS = 4 };

enum { FIRST, RELU, TWICE, UNUSED, LAST }; // the model's children; the first four are units

static Device *device;
static Profile profile;
static char calls[400];           // f0: before_forward of unit 0; F: after; g, G: backward
static const char *fails;         // the failing call, such as "f0"; NULL: none
static bool says_why;             // the failing call sets an error
static bool finishing;            // during own_units_finish
static const OwnFsdpUnit *listed; // the units passed to open
static size_t listed_count;

// ---- the user's functions -----------------------------------------------------------------------

static int note(Error *err, const char *kind, size_t unit, const char *more) {
    char call[16];
    snprintf(call, sizeof call, "%s%zu%s", kind, unit, more);
    format_append(calls, sizeof calls, "%s ", call);
    // The calls' time is charged as exposed; at the end of a backward the caller charges it.
    if (!kind[1]) assert_int_equal(profile.current, finishing ? PHASE_FORWARD : PHASE_EXPOSED);
    if (!fails || strcmp(fails, call) != 0) return 0;
    return says_why ? error_set(err, STATUS_FAILED, "why") : -1;
}

static void *open_units(Module *model, const OwnFsdpUnit *units, size_t count, ProcessGroup *group,
                        ReduceOp op, Error *err) {
    (void)model, (void)group, (void)op;
    listed = units;
    listed_count = count;
    return note(err, "open", count, "") == 0 ? calls : NULL;
}

static int before_forward(void *self, size_t unit, Error *err) {
    assert_ptr_equal(self, calls);
    return note(err, "f", unit, "");
}

static int after_forward(void *self, size_t unit, bool follows, Error *err) {
    (void)self;
    return note(err, "F", unit, follows ? "+" : "");
}

static int before_backward(void *self, size_t unit, Error *err) {
    (void)self;
    return note(err, "g", unit, "");
}

static int after_backward(void *self, size_t unit, bool complete, Error *err) {
    (void)self;
    return note(err, "G", unit, complete ? "!" : "");
}

static int finish_backward(void *self, Error *err) {
    (void)self;
    return note(err, "finish", 0, "");
}

static void close_units(void *self) {
    (void)self;
    (void)note(NULL, "close", 0, "");
}

static const OwnFsdp FILE_OF_USER = {OWN_FSDP_VERSION, open_units,      before_forward,
                                     after_forward,    before_backward, after_backward,
                                     finish_backward,  close_units};

// ---- a model ------------------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    Module **child = self->children;
    assert_int_equal(profile.current, PHASE_FORWARD);
    x = module_forward(child[RELU], tape, module_forward(child[FIRST], tape, x));
    x = module_forward(child[TWICE], tape, module_forward(child[TWICE], tape, x));
    assert_int_equal(profile.current, PHASE_FORWARD);
    return module_forward(child[LAST], tape, x);
}

// tied: the last layer shares the first layer's weight.
static Module *make_model(bool tied) {
    Module *model = module_create("Model", forward);
    module_add(model, "first", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "relu", layer_relu());
    module_add(model, "twice", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "unused", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "last", layer_linear(device, WIDTH, WIDTH));
    if (tied)
        module_tie_parameter(model->children[LAST], "weight", model->children[FIRST], "weight");
    module_initialize(model, 1);
    return model;
}

static OwnUnits *open_all(Module *model, Error *err) {
    calls[0] = '\0';
    return own_units_open(model, model->children, UNITS, &FILE_OF_USER, NULL, PG_AVG, err);
}

// Runs a forward; with `backward` a backward, and unless `units` is NULL the backward's end. 0, or
// -1 with err filled.
static int step(Module *model, OwnUnits *units, bool backward, Error *err) {
    const float x[ROWS * WIDTH] = {1, 2, 3, 4, 5, 6};
    const size_t shape[] = {ROWS, WIDTH};
    Tape *tape = tape_create(device, &profile);
    profile_begin_step(&profile);
    (void)profile_enter(&profile, PHASE_FORWARD);
    tape->recording = tape->training = backward;
    Tensor *y = module_forward(model, tape, tape_input(tape, DTYPE_F32, 2, shape, x));
    Tensor *loss = op_squared_error(tape, y, tape_input(tape, DTYPE_F32, 2, shape, x), ROWS);
    assert_int_equal(profile.current, PHASE_FORWARD);
    int status = tape_error(tape, err);
    if (status == 0 && backward) status = tape_backward(tape, loss, err);
    finishing = true;
    if (status == 0 && backward && units) status = own_units_finish(units, err);
    finishing = false;
    tape_close(tape);
    return status;
}

static void units_have_what_they_alone_have(void **state) {
    (void)state;
    static const struct {
        const char *name, *parameters;
    } wanted[UNITS + 1] = {{"Linear 0", "first.bias "},
                           {"ReLU 1", ""},
                           {"Linear 2", "twice.weight twice.bias "},
                           {"Linear 3", "unused.weight unused.bias "},
                           {"Model 4", "first.weight last.bias "}};
    Error err = {0};
    Module *model = make_model(true);
    OwnUnits *units = open_all(model, &err);
    CHECK_OK(units, err);
    assert_int_equal(listed_count, UNITS + 1);
    for (size_t u = 0; u < listed_count; u++) {
        char names[200] = "";
        for (size_t i = 0; i < listed[u].parameters.count; i++)
            format_append(names, sizeof names, "%s ", listed[u].parameters.items[i].name);
        assert_string_equal(listed[u].name, wanted[u].name);
        assert_string_equal(names, wanted[u].parameters);
    }
    own_units_close(units);
    module_close(model);
}

static void calls_surround_each_run(void **state) {
    (void)state;
    Error err = {0};
    Module *model = make_model(true);
    Module **child = model->children;
    const Module before[] = {*child[FIRST], *child[TWICE], *model};
    OwnUnits *units = open_all(model, &err);
    assert_string_equal(calls, "open5 ");
    for (int i = 0; i < 2; i++) { // both steps make the same calls
        calls[0] = '\0';
        assert_int_equal(step(model, units, true, &err), 0);
        assert_string_equal(calls, "f4 f0 F0+ f2 F2+ f2 F2+ F4+ "
                                   "g4 g2 G2 g2 G2! g0 G0! G4! finish0 ");
        calls[0] = '\0';
        assert_int_equal(step(model, units, false, &err), 0);
        assert_string_equal(calls, "f4 f0 F0 f2 F2 f2 F2 F4 ");
    }
    calls[0] = '\0';
    own_units_close(units);
    assert_string_equal(calls, "close0 ");
    assert_true(child[FIRST]->forward == before[0].forward &&
                child[FIRST]->state == before[0].state);
    assert_true(child[TWICE]->forward == before[1].forward &&
                child[TWICE]->state == before[1].state);
    assert_true(model->forward == before[2].forward && model->state == before[2].state);
    assert_int_equal(step(model, NULL, false, &err), 0);
    own_units_close(NULL);
    module_close(model);
}

// The root's functions are called even if it has no parameters: its forward surrounds the others.
static void the_root_may_have_no_parameters(void **state) {
    (void)state;
    Error err = {0};
    Module *model = make_model(false);
    calls[0] = '\0';
    OwnUnits *units =
        own_units_open(model, model->children, UNITS + 1, &FILE_OF_USER, NULL, PG_AVG, &err);
    CHECK_OK(units, err);
    assert_int_equal(listed[UNITS + 1].parameters.count, 0);
    assert_int_equal(step(model, units, true, &err), 0);
    assert_string_equal(calls, "open6 f5 f0 F0+ f2 F2+ f2 F2+ f4 F4+ F5+ "
                               "g5 g4 G4! g2 G2 g2 G2! g0 G0! G5! finish0 ");
    own_units_close(units);
    module_close(model);
}

// A backward with held gradients has no end; the next forward ends it.
static void held_gradients_are_complete_in_the_last_backward(void **state) {
    (void)state;
    Error err = {0};
    Module *model = make_model(true);
    OwnUnits *units = open_all(model, &err);
    CHECK_OK(units, err);
    own_units_hold_gradients(units, true);
    assert_int_equal(step(model, NULL, true, &err), 0);
    assert_string_equal(calls, "open5 f4 f0 F0+ f2 F2+ f2 F2+ F4+ g4 g2 G2 g2 G2 g0 ");
    calls[0] = '\0';
    own_units_hold_gradients(units, false);
    assert_int_equal(step(model, units, true, &err), 0);
    assert_string_equal(calls, "G0 G4 f4 f0 F0+ f2 F2+ f2 F2+ F4+ "
                               "g4 g2 G2 g2 G2! g0 G0! G4! finish0 ");
    assert_int_equal(step(model, NULL, true, &err), 0);
    calls[0] = '\0';
    fails = "G0";
    assert_int_equal(step(model, units, true, &err), -1);
    assert_string_equal(calls, "G0 ");
    fails = NULL;
    own_units_close(units);
    module_close(model);
}

static Tensor *pair_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y = module_forward(self->children[0], tape, x);
    return tuple_keep(tape, (Tensor *[]){y, op_clone(tape, y)}, 2);
}

static Tensor *branches_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *left = module_forward(self->children[0], tape, x);
    Tensor *right = module_forward(self->children[1], tape, x);
    Tensor *two = module_forward(self->children[2], tape, op_add(tape, left, right));
    return op_add(tape, two->items[0], two->items[1]);
}

// A unit with two outputs gets one call of each function. Of two units whose inputs need no
// gradient, the later one in the model completes its backward first.
static void units_with_two_outputs_or_the_same_input(void **state) {
    (void)state;
    Error err = {0};
    Module *model = module_create("Branches", branches_forward);
    Module *pair = module_create("Pair", pair_forward);
    module_add(pair, "inside", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "left", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "right", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "pair", pair);
    module_initialize(model, 1);
    calls[0] = '\0';
    OwnUnits *units = own_units_open(model, model->children, 3, &FILE_OF_USER, NULL, PG_AVG, &err);
    CHECK_OK(units, err);
    assert_int_equal(step(model, units, true, &err), 0);
    assert_string_equal(calls, "open4 f3 f0 F0+ f1 F1+ f2 F2+ F3+ "
                               "g3 g2 G2! g1 g0 G1! G0! G3! finish0 ");
    own_units_close(units);
    module_close(model);
}

// Uses its bias in every second forward.
static Tensor *unbiased_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *bias = self->config[5]++ % 2 ? module_parameter(self, 1) : NULL;
    return op_linear(tape, x, module_parameter(self, 0), bias);
}

static Tensor *twice_forward(Module *self, Tape *tape, Tensor *x) {
    return module_forward(self->children[0], tape, module_forward(self->children[0], tape, x));
}

// A unit's backward is complete when all its parameters have their last contribution.
static void units_are_complete_with_all_parameters(void **state) {
    (void)state;
    Error err = {0};
    Module *model = module_create("Twice", twice_forward);
    module_add(model, "linear", layer_linear(device, WIDTH, WIDTH))->forward = unbiased_forward;
    module_initialize(model, 1);
    calls[0] = '\0';
    OwnUnits *units = own_units_open(model, model->children, 1, &FILE_OF_USER, NULL, PG_AVG, &err);
    CHECK_OK(units, err);
    assert_int_equal(step(model, units, true, &err), 0);
    assert_string_equal(calls, "open2 f1 f0 F0+ f0 F0+ F1+ g1 g0 G0 g0 G0! G1! finish0 ");
    own_units_close(units);
    module_close(model);
}

static Tensor *given[4]; // inputs of the unit

// Uses only the first item of a tuple; the others are a tensor with a gradient, the batch, and
// None.
static Tensor *first_forward(Module *self, Tape *tape, Tensor *x) {
    assert_true(self->state == given);
    for (int i = 0; i < 4; i++) // tensors that require a gradient are passed as views
        assert_int_equal(x->items[i] == given[i], i > 1);
    return module_forward(self->children[0], tape, x->items[0]);
}

static Tensor *around_forward(Module *self, Tape *tape, Tensor *x) {
    given[0] = module_forward(self->children[0], tape, x);
    given[1] = module_forward(self->children[1], tape, x);
    given[2] = x;
    Tensor *y = module_forward(self->children[2], tape, tuple_keep(tape, given, 4));
    y = op_add(tape, y, given[1]);
    for (size_t i = 0; i < tape->count; i++)
        if (strcmp(tape->nodes[i].op, "all_gather") == 0 ||
            strcmp(tape->nodes[i].op, "reduce_scatter") == 0)
            assert_int_equal(tape->nodes[i].reads, 0);
    return y;
}

// A tensor that a unit receives and does not use gets its gradient from its other users.
static void units_leave_alone_what_they_do_not_use(void **state) {
    (void)state;
    Error err = {0};
    Module *model = module_create("Around", around_forward);
    Module *first = module_create("First", first_forward);
    module_add(first, "inside", layer_linear(device, WIDTH, WIDTH));
    first->state = given;
    module_add(model, "used", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "beside", layer_linear(device, WIDTH, WIDTH));
    module_add(model, "unit", first);
    module_initialize(model, 1);
    OwnUnits *units = own_units_open(model, model->children, 3, &FILE_OF_USER, NULL, PG_AVG, &err);
    CHECK_OK(units, err);
    assert_int_equal(step(model, units, true, &err), 0);
    const Tensor *bias = module_parameter(module_child(model, "beside"), 1);
    assert_true(bias->has_grad && bias->grad[0] != 0);
    own_units_close(units);
    module_close(model);
}

// No call follows a failing call; its error is kept, or, if it set none, the call is named.
static void a_function_that_fails_ends_the_step(void **state) {
    (void)state;
    static const struct {
        const char *call, *function;
    } cases[] = {
        {"open5", "open"},         {"f4", "before_forward"},  {"f2", "before_forward"},
        {"F0+", "after_forward"},  {"F2+", "after_forward"},  {"F4+", "after_forward"},
        {"g4", "before_backward"}, {"g2", "before_backward"}, {"G2", "after_backward"},
        {"G0!", "after_backward"}, {"G4!", "after_backward"}, {"finish0", "finish_backward"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int why = 0; why < 2; why++) {
            char wanted[80];
            Error err = {0};
            Module *model = make_model(true);
            fails = cases[i].call;
            says_why = why;
            OwnUnits *units = open_all(model, &err);
            assert_int_equal(units != NULL, i > 0);
            if (units) assert_int_equal(step(model, units, true, &err), -1);
            if (!units) assert_true(model->forward == forward); // unchanged
            snprintf(wanted, sizeof wanted, "own_fsdp.%s failed and did not say why",
                     cases[i].function);
            check_message(&err, why ? "why" : wanted);
            calls[strlen(calls) - 1] = '\0';
            assert_string_equal(calls + strlen(calls) - strlen(cases[i].call), cases[i].call);
            fails = NULL;
            own_units_close(units);
            assert_int_equal(strstr(calls, "close0 ") != NULL, i > 0);
            module_close(model);
        }
}

static int setup(void **state) {
    (void)state;
    Error err = {0};
    device = device_open("cpu:0", &err);
    return device ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    device_close(device); // checks that all memory was freed
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_have_what_they_alone_have),
        cmocka_unit_test(calls_surround_each_run),
        cmocka_unit_test(the_root_may_have_no_parameters),
        cmocka_unit_test(held_gradients_are_complete_in_the_last_backward),
        cmocka_unit_test(units_with_two_outputs_or_the_same_input),
        cmocka_unit_test(units_are_complete_with_all_parameters),
        cmocka_unit_test(units_leave_alone_what_they_do_not_use),
        cmocka_unit_test(a_function_that_fails_ends_the_step),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
