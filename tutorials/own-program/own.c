/* own.c: a user's program, built with the installed library: its own data, operation and model.
 *
 *     own                             DataParallel on two devices
 *     ddprun --nproc-per-node 2 own   DistributedDataParallel on two ranks: the same bits
 *
 * Both write the weights to own.weights.
 */
#include <ddpc/ddpc.h>
#include <math.h>

enum { SAMPLES = 1200, BATCH = 60, EPOCHS = 30, HIDDEN = 32, DEVICES = 2 };

// Own data: points on three spirals; the label is the spiral's number.
static Dataset make_spirals(void) {
    static float points[SAMPLES][2];
    static int64_t labels[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        float along = (float)(i / 3) / (SAMPLES / 3), angle = 4 * along + 2.0944f * (float)(i % 3);
        labels[i] = i % 3;
        points[i][0] = along * cosf(angle), points[i][1] = along * sinf(angle);
    }
    return (Dataset){SAMPLES, {2, 1, 1}, .classes = 3, .floats = points[0], .labels = labels};
}

// Own operation: y = sin(x), so dx = dy * cos(x). It computes on the host, as CPU devices do.
static void sine_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0];
    bool add; // another use of x has contributed already
    float *dx = tape_grad(tape, x, &add), *dy = node->output->grad;
    for (size_t i = 0; dx && i < tensor_count(x); i++)
        dx[i] = (add ? dx[i] : 0) + dy[i] * cosf(tensor_f32(x)[i]);
    tape_grad_done(tape, x);
}

static Tensor *op_sine(Tape *tape, Tensor *x) {
    if (!x) return NULL; // an operation before this one has failed
    Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
    for (size_t i = 0; i < tensor_count(x); i++) tensor_f32(y)[i] = sinf(tensor_f32(x)[i]);
    tape_record(tape, "sine", sine_backward, y, 1, &x, NULL);
    return y;
}

// Own model.
static Tensor *own_forward(Module *self, Tape *tape, Tensor *x) {
    x = module_forward(module_child(self, "in"), tape, x);
    return module_forward(module_child(self, "out"), tape, op_sine(tape, x));
}

int main(void) {
    Dataset set = make_spirals();
    Error err = {0};
    Rendezvous me; // without ddprun: rank 0 of a world of 1
    must_do(init_from_env(&me, true, &err), &err);
    Device *devices[] = {device_open("cpu:0", &err), device_open("cpu:1", &err)};
    Module *model = module_create("Own", own_forward);
    module_add(model, "in", layer_linear(devices[0], 2, HIDDEN));
    module_add(model, "out", layer_linear(devices[0], HIDDEN, 3));
    module_initialize(model, 0);
    ProcessGroup *group = NULL;
    DdpConfig config = ddp_config_default();
    if (me.world_size > 1) group = init_process_group("auto", &me, devices[0], 60, &err);
    if (err.status != STATUS_OK) error_exit(&err);
    Module *wrapper = group ? distributed_data_parallel(model, group, &config, &err)
                            : data_parallel(model, devices, DEVICES, &err);
    Sampler *rows = sampler_blocked(SAMPLES, BATCH, me.world_size, me.rank, true, false, 0, &err);
    if (!wrapper || !rows) error_exit(&err);
    Loader *loader = loader_create(&set, rows, NULL, 2, devices[0]);
    Tape *tape = tape_create(devices[0], NULL);
    Optimizer *sgd = optimizer_create(model, &(OptimizerConfig){OPTIMIZER_SGD, .momentum = 0.9});

    for (size_t epoch = 0, step = 0; epoch < EPOCHS; epoch++) {
        double sum = 0; // of the losses of this rank's samples
        loader_start(loader, epoch, 0);
        for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
            pg_enter(group, "train", step++); // for ddprun's report of a failed rank
            Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){batch->count, 2}, batch->samples);
            Tensor *target = tape_input(tape, DTYPE_I64, 1, &batch->count, batch->labels);
            Tensor *y = module_forward(wrapper, tape, x);
            Tensor *loss = op_cross_entropy(tape, y, target, (double)batch->count);
            module_zero_grad(wrapper);
            must_do(tape_backward(tape, loss, &err), &err); // or the forward's error
            if (group) must_do(ddp_finish_backward(wrapper, NULL, &err), &err);
            optimizer_step(sgd, 0.1);
            sum += (double)tensor_item(loss) * (double)batch->count;
        }
        if (group) must_do(pg_run(group, pg_all_reduce(&sum, 1, PG_F64, PG_SUM), &err), &err);
        if (me.rank == 0) printf("epoch=%zu loss=%.3f\n", epoch, sum / SAMPLES);
    }
    if (me.rank == 0) must_do(safetensors_save_module("own.weights", model, NULL, 0, &err), &err);
    optimizer_close(sgd);
    tape_close(tape);
    loader_close(loader);
    sampler_close(rows);
    module_close(wrapper); // closes the model, too
    pg_close(group);
    for (int i = 0; i < DEVICES; i++) device_close(devices[i]);
    return STATUS_OK;
}
