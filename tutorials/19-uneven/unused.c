/* unused.c: a parameter that a rank does not use, with numbers for mental arithmetic.
 *
 * The model has two heads, y = a x and y = b x, and each forward goes through one of them: on even
 * ranks a, on odd ranks b. The input is 1 and the target 0, so the loss is y^2; a and b begin at 1,
 * and the gradient of the head that is used is 2. The wrapper is the library's own.
 */
#include <string.h>

#include "common/nn/layers.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/unused_parameters.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

#define LR        0.25
#define TIMEOUT_S 60.0

enum { MOST_RANKS = 64, STEPS = 2 };

// Runs the child whose number is config[0].
static Tensor *one_head(Module *self, Tape *tape, Tensor *x) {
    return module_forward(self->children[self->config[0]], tape, x);
}

static Module *two_heads(Device *device, size_t used) {
    Module *model = module_create("TwoHeads", one_head);
    for (int i = 0; i < 2; i++) {
        Module *head = module_add(model, i == 0 ? "a" : "b", layer_linear(device, 1, 1));
        tensor_f32(module_parameter(head, 0))[0] = 1.0f;
        module_parameter(head, 1)->requires_grad = false; // no bias
    }
    model->config[0] = used;
    return model;
}

// Rank 0 prints one number per rank, in the order of the ranks.
static void tell(ProcessGroup *group, const char *what, double number) {
    double numbers[MOST_RANKS];
    ranks_run(group, pg_all_gather(&number, numbers, 1, PG_F64));
    for (int rank = 0; pg_rank(group) == 0 && rank < pg_size(group); rank++)
        printf("%srank %d: %.2f", rank ? "   " : what, rank, numbers[rank]);
    if (pg_rank(group) == 0) printf("\n");
}

static void step(Module *wrapper, Module *model, Tape *tape, Optimizer *optimizer) {
    Error err = {0};
    const float one = 1.0f, zero = 0.0f;
    module_zero_grad(wrapper);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, 1}, &one);
    Tensor *target = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, 1}, &zero);
    Tensor *loss = op_squared_error(tape, module_forward(wrapper, tape, x), target, 1.0);
    if (tape_error(tape, &err) != 0 || tape_backward(tape, loss, &err) != 0 ||
        ddp_finish_backward(wrapper, NULL, &err) != 0)
        error_exit(&err);
    optimizer_step(optimizer, LR);
    tape_reset(tape);
    for (int i = 0; i < 2; i++) {
        const Tensor *head = module_parameter(model->children[i], 0);
        tell(ddp_group(wrapper), i == 0 ? "gradient of a  " : "gradient of b  ",
             (double)head->grad[0]);
        tell(ddp_group(wrapper), i == 0 ? "a afterwards   " : "b afterwards   ",
             (double)tensor_f32(head)[0]);
    }
}

int main(int argc, char **argv) {
    Error err = {0};
    Rendezvous me;
    const char *broken = "none";
    Options options = {.program = "tutorial_19_unused", .summary = "Step 19: unused parameters."};
    options_add_choice(&options, "break", &broken, "none|not-searched", "make this mistake");
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    if (init_from_env(&me, true, &err) != 0) error_exit(&err);
    ProcessGroup *group = init_process_group("shm", &me, NULL, TIMEOUT_S, &err);
    if (!group) error_exit(&err);
    CHECK(me.world_size <= MOST_RANKS, "at most %d ranks", MOST_RANKS);
    Device *device = lesson_device(me.local_rank);
    Module *model = two_heads(device, (size_t)me.rank % 2);
    DdpConfig config = ddp_config_default();
    Module *wrapper = distributed_data_parallel(model, group, &config, &err);
    if (!wrapper) error_exit(&err);
    if (strcmp(broken, "none") == 0) ddp_find_unused_parameters(wrapper);
    Tape *tape = tape_create(device, NULL);
    Optimizer *optimizer = optimizer_create(model, &(OptimizerConfig){.kind = OPTIMIZER_SGD});

    for (int i = 0; i < STEPS; i++) step(wrapper, model, tape, optimizer);

    optimizer_close(optimizer);
    tape_close(tape);
    module_close(wrapper);
    device_close(device);
    pg_close(group);
    return STATUS_OK;
}
