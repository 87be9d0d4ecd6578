/* own_ddp.c: a user's own training program, with DistributedDataParallel: own_dp.c converted.
 *
 *     ddprun --nproc-per-node N tutorial_own_ddp FILE [blocked]     writes the weights to FILE
 */
#include <string.h>

#include "common/data/loader.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/tensor_files/safetensors.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/rendezvous/init.h"

enum { EPOCHS = 2, BATCH = 60, FEATURES = 64, CLASSES = 10 };

static Tensor *forward(Module *model, Tape *tape, const Batch *batch) {
    size_t shape[] = {batch->count, FEATURES};
    return module_forward(model, tape, tape_input(tape, DTYPE_F32, 2, shape, batch->samples));
}

// Runs this rank's part of the test set. Returns the number of samples recognised.
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
    if (argc != 2 && (argc != 3 || strcmp(argv[2], "blocked") != 0))
        return fprintf(stderr, "usage: tutorial_own_ddp FILE [blocked]\n"), STATUS_USAGE;
    Rendezvous me;
    must_do(init_from_env(&me, true, &err), &err);
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", me.local_rank);
    Device *device = must_get(device_open(name, &err), &err);
    ProcessGroup *group = must_get(init_process_group("auto", &me, device, 60.0, &err), &err);
    DataSource *data = must_get(dataset_open("digits", 0, &err), &err);
    ModelConfig config = {"mlp", "128", {FEATURES, 1, 1}, CLASSES, .seed = 0};
    Module *model = must_get(model_create(&config, device, &err), &err);
    DdpConfig ddp = ddp_config_default();
    Module *wrapper = must_get(distributed_data_parallel(model, group, &ddp, &err), &err);
    SamplerOfRank *sampler_of_rank = argc == 3 ? sampler_blocked : distributed_sampler;
    Sampler *sampler = must_get(
        sampler_of_rank(data->train.count, BATCH, me.world_size, me.rank, true, false, 0, &err),
        &err);
    Sampler *test_sampler = sampler_evaluation(data->test.count, BATCH, me.world_size, me.rank);
    Loader *loader = loader_create(&data->train, sampler, NULL, 2, device);
    Loader *test_loader = loader_create(&data->test, test_sampler, NULL, 2, device);
    Tape *tape = tape_create(device, NULL);
    Optimizer *optimizer =
        optimizer_create(model, &(OptimizerConfig){.kind = OPTIMIZER_SGD, .momentum = 0.9});

    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        double sums[3] = {0}; // this rank's total loss, samples, samples recognised
        loader_start(loader, epoch, 0);
        for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
            module_zero_grad(wrapper);
            Tensor *y = forward(wrapper, tape, batch);
            Tensor *labels = tape_input(tape, DTYPE_I64, 1, &batch->count, batch->labels);
            Tensor *loss = op_cross_entropy(tape, y, labels, (double)batch->count);
            must_do(tape_error(tape, &err), &err);
            must_do(tape_backward(tape, loss, &err), &err);
            must_do(ddp_finish_backward(wrapper, NULL, &err), &err);
            optimizer_step(optimizer, 0.05);
            sums[0] += (double)tensor_item(loss) * (double)batch->count;
            sums[1] += (double)batch->count;
        }
        must_do(ddp_sync_buffers(wrapper, 0, &err), &err); // all ranks test the same model
        sums[2] = evaluate(model, tape, test_loader);
        must_do(pg_run(group, pg_all_reduce(sums, 3, PG_F64, PG_SUM), &err), &err);
        if (me.rank == 0)
            printf("epoch=%zu loss=%.4f correct=%.0f of %zu\n", epoch, sums[0] / sums[1], sums[2],
                   data->test.count);
    }
    if (me.rank == 0) must_do(safetensors_save_module(argv[1], model, NULL, 0, &err), &err);
    must_do(pg_run(group, pg_barrier(), &err), &err); // the file is complete for all ranks

    optimizer_close(optimizer);
    tape_close(tape);
    loader_close(loader);
    loader_close(test_loader);
    sampler_close(sampler);
    sampler_close(test_sampler);
    module_close(wrapper); // closes the model, too
    pg_close(group);
    device_close(device);
    dataset_close(data);
    return STATUS_OK;
}
