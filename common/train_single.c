/* train_single.c: training on one device.
 *
 * Read this first, then dp/train_dp.c and ddp/train_ddp.c beside it: the three differ only in the
 * lines that make them parallel. The trainer itself is common/train/trainer.c.
 */
#include "common/train/trainer.h"

static const char SUMMARY[] = "Trains a network on one device.\n"
                              "Example: train_single --model convnet --epochs 20 --profile";

static Strategy *open_strategy(const TrainConfig *config, const DataSource *data, Error *err) {
    Device *device = train_open_device(config, 0, err);
    if (!device) return NULL;
    Module *model = train_create_model(config, data, device, 0, err);
    if (!model) return NULL;
    return strategy_single(model, device);
}

int main(int argc, char **argv) {
    TrainConfig config = train_config_default();
    Options options = {.program = "train_single", .summary = SUMMARY};
    train_options(&options, &config);

    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    DataSource *data = train_open_data(&config, &err);
    if (!data) error_exit(&err);
    Strategy *strategy = open_strategy(&config, data, &err);
    if (!strategy) error_exit(&err);

    if (trainer_run(&config, &options, data, strategy, &err) != 0) error_exit(&err);

    strategy->close(strategy);
    dataset_close(data);
    return STATUS_OK;
}
