/* train_dp.c: training on several devices of one process, with DataParallel.
 *
 * Read common/train_single.c first: what differs from it is marked "dp:".
 */
#include "common/train/trainer.h"
#include "dp/data_parallel.h" // dp: the wrapper, and the Strategy that runs it

static const char SUMMARY[] = "Trains a network on several devices with DataParallel.\n"
                              "Example: train_dp --devices 4 --model convnet --profile";

static Strategy *open_strategy(const TrainConfig *config, const DataSource *data, int *ids,
                               int count, Error *err) { // dp: ids[count] are the devices to use
    Device *devices[DP_MAX_DEVICES] = {0};
    for (int i = 0; i < count; i++) { // dp: opens them all; the first one holds the model
        devices[i] = train_open_device(config, ids[i], err);
        if (!devices[i]) return NULL;
    }
    Module *model = train_create_model(config, data, devices[0], 0, err);
    if (!model) return NULL;
    Module *wrapper = data_parallel(model, devices, count, err); // dp: what steps run
    if (!wrapper) return NULL;                                   // dp: a device is given twice
    return strategy_dp(model, wrapper, devices, count);
}

int main(int argc, char **argv) {
    TrainConfig config = train_config_default();
    Options options = {.program = "train_dp", .summary = SUMMARY};
    train_options(&options, &config);
    int count = 2, ids[DP_MAX_DEVICES]; // dp: its own two options, and which devices they mean
    const char *id_list = NULL;
    options_add(&options, (Option){.type = OPTION_TITLE, .help = "DataParallel"});
    options_add(&options, (Option){"devices", OPTION_INT, &count, "N", 1, DP_MAX_DEVICES,
                                   "use the devices 0 to N-1"});
    options_add(&options, (Option){"device-ids", OPTION_STRING, &id_list, "N,N", 0, 0,
                                   "use these instead; the first holds the model"});

    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    count = strategy_dp_device_ids(count, id_list, ids, &err);
    if (count < 0) error_exit(&err); // dp: a bad list
    DataSource *data = train_open_data(&config, &err);
    if (!data) error_exit(&err);
    Strategy *strategy = open_strategy(&config, data, ids, count, &err);
    if (!strategy) error_exit(&err);

    if (trainer_run(&config, &options, data, strategy, &err) != 0) error_exit(&err);

    strategy->close(strategy);
    dataset_close(data);
    return STATUS_OK;
}
