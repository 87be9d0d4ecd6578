/* train_dp.c: training on several devices of one process, with DataParallel.
 *
 * Read common/train_single.c first: what differs from it is marked "dp:".
 */
#include "common/train/trainer.h"
#include "dp/data_parallel.h" // dp: the wrapper and its Strategy
#include "dp/options.h"       // dp: its own options

static const char SUMMARY[] = // dp: what --help says
    "Trains a network on several devices with DataParallel.\n"
    "Example: train_dp --devices 4 --model convnet --profile";

static Strategy *open_strategy(const TrainConfig *config, const DataSource *data,
                               const DpOptions *dp, Error *err) { // dp: its own options
    Device *devices[DP_MAX_DEVICES];                              // dp: several; the first leads
    int count = dp_options_open(dp, config, devices, err);        // dp: opens them all
    if (count < 0) return NULL;                                   // dp: a bad list, or no device
    Module *model = train_create_model(config, data, devices[0], 0, err); // dp: on the first
    if (!model) return NULL;
    Module *wrapper = data_parallel(model, devices, count, err); // dp: what steps run
    if (!wrapper) return NULL;                                   // dp: a device is given twice
    return strategy_dp(model, wrapper, devices, count);          // dp: instead of a single device
}

int main(int argc, char **argv) {
    TrainConfig config = train_config_default();
    Options options = {.program = "train_dp", .summary = SUMMARY}; // dp: its name
    train_options(&options, &config);
    DpOptions dp = dp_options_default(); // dp: its own options
    dp_options(&options, &dp);           // dp: in the same table

    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    if (dp_options_check(&dp, &options, &err) != 0) error_exit(&err); // dp: two lists of devices
    DataSource *data = train_open_data(&config, &err);
    if (!data) error_exit(&err);
    Strategy *strategy = open_strategy(&config, data, &dp, &err); // dp: with its options
    if (!strategy) error_exit(&err);

    if (trainer_run(&config, &options, data, strategy, &err) != 0) error_exit(&err);

    strategy->close(strategy);
    dataset_close(data);
    return STATUS_OK;
}
