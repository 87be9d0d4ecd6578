/* two_and_200.c: DistributedDataParallel on one weight, with numbers for mental arithmetic.
 *
 * The model is y = w x, the input is 1 and the target 1, so the loss is (w - 1)^2 and its gradient
 * 2w - 2. Rank 0 starts with w = 2 and rank 1 with w = 200. The wrapper is the library's own.
 */
#include "common/nn/layers.h"
#include "ddp/distributed_data_parallel.h"
#include "tutorials/lesson.h"
#include "tutorials/ranks.h"

#define LR        0.01
#define TIMEOUT_S 60.0

enum { MOST_RANKS = 64 };

typedef struct Experiment {
    ProcessGroup *group;
    Module *wrapper;
    Tensor *weight; // [1, 1]
    Tape *tape;
    Optimizer *optimizer;
} Experiment;

// Rank 0 prints every rank's numbers, because lines of several processes are not ordered.
static void tell(const Experiment *e, const char *what, double number) {
    double numbers[MOST_RANKS];
    ranks_run(e->group, pg_all_gather(&number, numbers, 1, PG_F64));
    for (int rank = 0; pg_rank(e->group) == 0 && rank < pg_size(e->group); rank++)
        printf("rank %d: %-24s %6.2f\n", rank, what, numbers[rank]);
}

static double weight(const Experiment *e) {
    return (double)tensor_f32(e->weight)[0];
}

static void step(const Experiment *e) {
    Error err = {0};
    const float one = 1.0f;
    tell(e, "own gradient 2w - 2", 2 * weight(e) - 2);
    module_zero_grad(e->wrapper);
    Tensor *x = tape_input(e->tape, DTYPE_F32, 2, (size_t[]){1, 1}, &one);
    Tensor *y = module_forward(e->wrapper, e->tape, x);
    Tensor *loss = op_squared_error(e->tape, y, x, 1.0); // the target is 1, as x is
    if (tape_error(e->tape, &err) != 0 || tape_backward(e->tape, loss, &err) != 0 ||
        ddp_finish_backward(e->wrapper, NULL, &err) != 0)
        error_exit(&err);
    tell(e, "gradient after backward", (double)e->weight->grad[0]);
    optimizer_step(e->optimizer, LR);
    tape_reset(e->tape);
    tell(e, "weight after the step", weight(e));
}

int main(void) {
    Error err = {0};
    Rendezvous me;
    Experiment e = {0};
    if (init_from_env(&me, true, &err) != 0) error_exit(&err);
    e.group = init_process_group("shm", &me, NULL, TIMEOUT_S, &err);
    if (!e.group) error_exit(&err);
    CHECK(me.world_size <= MOST_RANKS, "at most %d ranks", MOST_RANKS);
    Device *device = lesson_device(me.local_rank);
    Module *model = layer_linear(device, 1, 1);
    e.weight = module_parameter(model, 0);
    Tensor *bias = module_parameter(model, 1);
    bias->requires_grad = false;
    tensor_f32(bias)[0] = 0.0f;
    tensor_f32(e.weight)[0] = me.rank == 0 ? 2.0f : 200.0f;
    tell(&e, "weight at the start", weight(&e));

    DdpConfig config = ddp_config_default();
    e.wrapper = distributed_data_parallel(model, e.group, &config, &err);
    if (!e.wrapper) error_exit(&err);
    tell(&e, "weight once wrapped", weight(&e));
    e.tape = tape_create(device, NULL);
    e.optimizer = optimizer_create(model, &(OptimizerConfig){.kind = OPTIMIZER_SGD});
    step(&e);

    if (me.rank == 0)
        printf("now the weights are set to 2 and 200 again, behind the wrapper's back\n");
    tensor_f32(e.weight)[0] = me.rank == 0 ? 2.0f : 200.0f;
    step(&e);

    optimizer_close(e.optimizer);
    tape_close(e.tape);
    module_close(e.wrapper); // closes the model, too
    device_close(device);
    pg_close(e.group);
    return STATUS_OK;
}
