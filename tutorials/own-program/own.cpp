/* own.cpp: own.c in C++. It computes the same bits.
 *
 *     own_cpp                             DataParallel on two devices
 *     ddprun --nproc-per-node 2 own_cpp   DistributedDataParallel on two ranks: the same bits
 */
#include <cmath>
#include <ddpc/ddpc.h>
#include <memory>

constexpr int SAMPLES = 1200, BATCH = 60, EPOCHS = 30, HIDDEN = 32, DEVICES = 2;

// Own data: points on three spirals; the label is the spiral's number.
static Dataset make_spirals() {
    static float xy[SAMPLES][2];
    static int64_t labels[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        float along = float(i / 3) / (SAMPLES / 3), angle = 4 * along + 2.0944f * float(i % 3);
        labels[i] = i % 3;
        xy[i][0] = along * std::cos(angle), xy[i][1] = along * std::sin(angle);
    }
    return {.count = SAMPLES, .shape = {2, 1, 1}, .classes = 3, .floats = xy[0], .labels = labels};
}

// Own operation: y = sin(x), so dx = dy * cos(x). It computes on the host, as CPU devices do.
static Tensor *op_sine(Tape *tape, Tensor *x) {
    if (!x) return nullptr; // an operation before this one has failed
    Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
    for (size_t i = 0; i < tensor_count(x); i++) tensor_f32(y)[i] = std::sin(tensor_f32(x)[i]);
    auto backward = [](Tape *back, TapeNode *node) {
        bool add; // another use of x has contributed already
        float *dx = tape_grad(back, node->inputs[0], &add), *dy = node->output->grad;
        for (size_t i = 0; dx && i < tensor_count(node->inputs[0]); i++)
            dx[i] = (add ? dx[i] : 0) + dy[i] * std::cos(tensor_f32(node->inputs[0])[i]);
        tape_grad_done(back, node->inputs[0]);
    };
    tape_record(tape, "sine", backward, y, 1, &x, nullptr);
    return y;
}

// Own model.
static Tensor *own_forward(Module *self, Tape *tape, Tensor *x) {
    x = module_forward(module_child(self, "in"), tape, x);
    return module_forward(module_child(self, "out"), tape, op_sine(tape, x));
}

// Returns a smart pointer that closes `opened`; ends the program if it is NULL.
template <typename T> auto owned(T *opened, void (*close)(T *), const Error &err) {
    return std::unique_ptr<T, void (*)(T *)>(must_get(opened, &err), close);
}

int main() {
    Dataset set = make_spirals();
    Error err{};
    Rendezvous me; // without ddprun: rank 0 of a world of 1
    must_do(init_from_env(&me, true, &err), &err);
    auto first = owned(device_open("cpu:0", &err), device_close, err);
    auto second = owned(device_open("cpu:1", &err), device_close, err);
    Device *devices[] = {first.get(), second.get()};
    Module *net = module_create("Own", own_forward);
    module_add(net, "in", layer_linear(devices[0], 2, HIDDEN));
    module_add(net, "out", layer_linear(devices[0], HIDDEN, 3));
    module_initialize(net, 0);
    std::unique_ptr<ProcessGroup, void (*)(ProcessGroup *)> group(nullptr, pg_close);
    DdpConfig config = ddp_config_default();
    if (me.world_size > 1)
        group = owned(init_process_group("auto", &me, devices[0], 60, &err), pg_close, err);
    Module *made = group ? distributed_data_parallel(net, group.get(), &config, &err)
                         : data_parallel(net, devices, DEVICES, &err);
    auto wrapper = owned(made, module_close, err); // closes the net, too
    Sampler *mine = sampler_blocked(SAMPLES, BATCH, me.world_size, me.rank, true, false, 0, &err);
    auto rows = owned(mine, sampler_close, err);
    auto loader = owned(loader_create(&set, rows.get(), nullptr, 2, devices[0]), loader_close, err);
    auto tape = owned(tape_create(devices[0], nullptr), tape_close, err);
    OptimizerConfig settings{.kind = OPTIMIZER_SGD, .momentum = 0.9};
    auto sgd = owned(optimizer_create(net, &settings), optimizer_close, err);

    for (size_t epoch = 0, step = 0; epoch < EPOCHS; epoch++) {
        double sum = 0; // of the losses of this rank's samples
        loader_start(loader.get(), epoch, 0);
        for (const Batch *batch; (batch = loader_next(loader.get())); tape_reset(tape.get())) {
            pg_enter(group.get(), "train", step++); // for ddprun's report of a failed rank
            size_t shape[] = {batch->count, 2};
            Tensor *x = tape_input(tape.get(), DTYPE_F32, 2, shape, batch->samples);
            Tensor *target = tape_input(tape.get(), DTYPE_I64, 1, shape, batch->labels);
            Tensor *y = module_forward(wrapper.get(), tape.get(), x);
            Tensor *loss = op_cross_entropy(tape.get(), y, target, double(batch->count));
            module_zero_grad(wrapper.get());
            must_do(tape_backward(tape.get(), loss, &err), &err); // or the forward's error
            if (group) must_do(ddp_finish_backward(wrapper.get(), nullptr, &err), &err);
            optimizer_step(sgd.get(), 0.1);
            sum += double(tensor_item(loss)) * double(batch->count);
        }
        if (group) must_do(pg_run(group.get(), pg_all_reduce(&sum, 1, PG_F64, PG_SUM), &err), &err);
        if (me.rank == 0) printf("epoch=%zu loss=%.3f\n", epoch, sum / SAMPLES);
    }
    if (me.rank == 0) must_do(safetensors_save_module("own.weights", net, nullptr, 0, &err), &err);
}
