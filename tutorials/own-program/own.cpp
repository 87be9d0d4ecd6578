/* own.cpp: own.c in C++. It computes the same bits.
 *
 *     own_cpp                             DataParallel on two devices
 *     ddprun --nproc-per-node 2 own_cpp   DistributedDataParallel on two ranks: the same bits
 */
#include <cmath>
#include <cstdio>
#include <ddpc/ddpc.h>
#include <memory>
#include <vector>

constexpr int SAMPLES = 1200, BATCH = 60, EPOCHS = 30, HIDDEN = 32, DEVICES = 2;

// Own data: points on three spirals; the label says on which.
static Dataset make_spirals(std::vector<float> &points, std::vector<int64_t> &labels) {
    for (int i = 0; i < SAMPLES; i++) {
        float along = float(i / 3) / (SAMPLES / 3), angle = 4 * along + 2.0944f * float(i % 3);
        labels.push_back(i % 3);
        points.insert(points.end(), {along * std::cos(angle), along * std::sin(angle)});
    }
    Dataset set{};
    set.count = SAMPLES, set.classes = 3, set.shape[0] = 2, set.shape[1] = set.shape[2] = 1;
    set.floats = points.data(), set.labels = labels.data();
    return set;
}

// Own operation: y = sin(x), so dx = dy * cos(x). It computes on the host, as CPU devices do.
static Tensor *op_sine(Tape *tape, Tensor *x) {
    if (!x) return nullptr; // an operation before this one has failed
    Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
    for (size_t i = 0; i < tensor_count(x); i++) tensor_f32(y)[i] = std::sin(tensor_f32(x)[i]);
    auto backward = [](Tape *back, Node *node) {
        Tensor *input = node->inputs[0];
        bool add; // another use of x has contributed already
        float *dx = tape_grad(back, input, &add), *dy = node->output->grad;
        for (size_t i = 0; dx && i < tensor_count(input); i++)
            dx[i] = (add ? dx[i] : 0) + dy[i] * std::cos(tensor_f32(input)[i]);
        tape_grad_done(back, input);
    };
    tape_record(tape, "sine", backward, y, 1, &x, nullptr);
    return y;
}

// Own model.
static Tensor *own_forward(Module *self, Tape *tape, Tensor *x) {
    x = module_forward(module_child(self, "in"), tape, x);
    return module_forward(module_child(self, "out"), tape, op_sine(tape, x));
}

template <typename T> auto owned(T *thing, void (*close)(T *)) {
    return std::unique_ptr<T, void (*)(T *)>(thing, close);
}

int main() {
    std::vector<float> points;
    std::vector<int64_t> labels;
    Dataset set = make_spirals(points, labels);
    Error err{};
    Rendezvous me; // without ddprun: rank 0 of a world of 1
    must_do(init_from_env(&me, true, &err), &err);
    auto first = owned(must_get(device_open("cpu:0", &err), &err), device_close);
    auto second = owned(must_get(device_open("cpu:1", &err), &err), device_close);
    Device *devices[] = {first.get(), second.get()};
    auto group = owned<ProcessGroup>(nullptr, pg_close);
    Module *model = module_create("Own", own_forward);
    module_add(model, "in", layer_linear(devices[0], 2, HIDDEN));
    module_add(model, "out", layer_linear(devices[0], HIDDEN, 3));
    module_initialize(model, 0);
    DdpConfig config = ddp_config_default();
    if (me.world_size > 1)
        group.reset(must_get(init_process_group("auto", &me, devices[0], 60, &err), &err));
    Module *made = group ? distributed_data_parallel(model, group.get(), &config, &err)
                         : data_parallel(model, devices, DEVICES, &err);
    auto wrapper = owned(must_get(made, &err), module_close); // and with it the model
    auto rows = owned(
        must_get(sampler_blocked(SAMPLES, BATCH, me.world_size, me.rank, true, false, 0, &err),
                 &err),
        sampler_close);
    auto loader = owned(loader_create(&set, rows.get(), nullptr, 2, devices[0]), loader_close);
    auto tape = owned(tape_create(devices[0], nullptr), tape_close);
    OptimizerConfig settings{};
    settings.kind = OPTIMIZER_SGD, settings.momentum = 0.9;
    auto sgd = owned(optimizer_create(model, &settings), optimizer_close);

    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        double sum = 0; // of the losses of this rank's samples
        loader_start(loader.get(), epoch, 0);
        for (const Batch *batch; (batch = loader_next(loader.get())); tape_reset(tape.get())) {
            size_t shape[] = {batch->count, 2};
            Tensor *x = tape_input(tape.get(), DTYPE_F32, 2, shape, batch->samples);
            Tensor *target = tape_input(tape.get(), DTYPE_I64, 1, shape, batch->labels);
            Tensor *y = module_forward(wrapper.get(), tape.get(), x);
            Tensor *loss = op_cross_entropy(tape.get(), y, target, double(batch->count));
            module_zero_grad(wrapper.get());
            must_do(tape_backward(tape.get(), loss, &err), &err); // or what failed in the forward
            if (group) must_do(ddp_finish_backward(wrapper.get(), nullptr, &err), &err);
            optimizer_step(sgd.get(), 0.1);
            sum += double(tensor_item(loss)) * double(batch->count);
        }
        if (group) must_do(pg_run(group.get(), pg_all_reduce(&sum, 1, PG_F64, PG_SUM), &err), &err);
        if (me.rank == 0) std::printf("epoch=%zu loss=%.3f\n", epoch, sum / SAMPLES);
    }
    if (me.rank == 0)
        must_do(safetensors_save_module("own.weights", model, nullptr, 0, &err), &err);
}
