/* train_single.c: training on one device.
 *
 * Read this first, then dp/train_dp.c and ddp/train_ddp.c beside it: the three differ only in what
 * makes them parallel. The trainer itself is common/train/trainer.c, a step common/train/step.c. A
 * Strategy (common/train/strategy.h) is what the trainer asks where the three differ.
 */
#include "common/train/trainer.h"

static const char SUMMARY[] = "Trains a network on one device.\n"
                              "Example: train_single --model convnet --epochs 20 --profile";

int main(int argc, char **argv) {
    Error err = {0};
    TrainConfig config = train_config_default();
    Options options = {.program = "train_single", .summary = SUMMARY};
    train_options(&options, &config);
    must_do(options_parse(&options, argc, argv, &err), &err);

    DataSource *data = must_get(train_open_data(&config, &err), &err);
    Device *device = must_get(train_open_device(&config, 0, &err), &err);
    Module *model = must_get(train_create_model(&config, data, device, 0, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, config.global_batch, !config.no_shuffle,
                               config.drop_last, train_sampler_seed(&config), &err),
                 &err);
    Strategy *strategy = strategy_single(model, device, sampler);

    must_do(trainer_run(&config, &options, data, strategy, &err), &err);

    strategy->close(strategy);
    dataset_close(data);
    return STATUS_OK;
}
