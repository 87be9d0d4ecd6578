/* own_dp.c: a user's own training program, with DataParallel: the start of dp-to-ddp.md.
 *
 *     tutorial_own_dp DEVICES FILE     trains on DEVICES devices, writes the weights to FILE
 */
#include "common/data/loader.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/tensor_files/safetensors.h"
#include "dp/data_parallel.h"

enum { EPOCHS = 2, BATCH = 60, FEATURES = 64, CLASSES = 10 };

static Tensor *forward(Module *model, Tape *tape, const Batch *batch) {
    size_t shape[] = {batch->count, FEATURES};
    return module_forward(model, tape, tape_input(tape, DTYPE_F32, 2, shape, batch->samples));
}

// Runs the test set. Returns the number of samples recognised.
static int evaluate(Module *model, Tape *tape, Loader *loader) {
    int correct = 0;
    tape->recording = tape->training = false;
    loader_start(loader, 0, 0);
    for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
        const float *logits = tensor_f32(forward(model, tape, batch));
        for (size_t row = 0; row < batch->count; row++, logits += CLASSES) {
            int best = 0;
            for (int c = 1; c < CLASSES; c++) best = logits[c] > logits[best] ? c : best;
            correct += best == batch->labels[row];
        }
    }
    tape->recording = tape->training = true;
    return correct;
}

int main(int argc, char **argv) {
    Error err = {0};
    if (argc != 3 || atoi(argv[1]) < 1 || atoi(argv[1]) > DP_MAX_DEVICES)
        return fprintf(stderr, "usage: tutorial_own_dp DEVICES FILE\n"), STATUS_USAGE;
    int count = atoi(argv[1]);
    Device *devices[DP_MAX_DEVICES];
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        devices[i] = must_get(device_open(name, &err), &err);
    }
    DataSource *data = must_get(dataset_open("digits", 0, &err), &err);
    ModelConfig config = {"mlp", "128", {FEATURES, 1, 1}, CLASSES, .seed = 0};
    Module *model = must_get(model_create(&config, devices[0], &err), &err);
    Module *wrapper = must_get(data_parallel(model, devices, count, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, BATCH, true, false, 0, &err), &err);
    Sampler *test_sampler = sampler_evaluation(data->test.count, BATCH, 1, 0);
    Loader *loader = loader_create(&data->train, sampler, NULL, 2, devices[0]);
    Loader *test_loader = loader_create(&data->test, test_sampler, NULL, 2, devices[0]);
    Tape *tape = tape_create(devices[0], NULL);
    Optimizer *optimizer =
        optimizer_create(model, &(OptimizerConfig){.kind = OPTIMIZER_SGD, .momentum = 0.9});

    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        double total = 0; // of the losses of all samples
        loader_start(loader, epoch, 0);
        for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
            module_zero_grad(wrapper);
            Tensor *y = forward(wrapper, tape, batch);
            Tensor *labels = tape_input(tape, DTYPE_I64, 1, &batch->count, batch->labels);
            Tensor *loss = op_cross_entropy(tape, y, labels, (double)batch->count);
            must_do(tape_error(tape, &err), &err);
            must_do(tape_backward(tape, loss, &err), &err);
            optimizer_step(optimizer, 0.05);
            total += (double)tensor_item(loss) * (double)batch->count;
        }
        int correct = evaluate(model, tape, test_loader);
        printf("epoch=%zu loss=%.4f correct=%d of %zu\n", epoch, total / (double)data->train.count,
               correct, data->test.count);
    }
    must_do(safetensors_save_module(argv[2], model, NULL, 0, &err), &err);

    optimizer_close(optimizer);
    tape_close(tape);
    loader_close(loader);
    loader_close(test_loader);
    sampler_close(sampler);
    sampler_close(test_sampler);
    module_close(wrapper); // closes the model, too
    for (int i = 0; i < count; i++) device_close(devices[i]);
    dataset_close(data);
    return STATUS_OK;
}
