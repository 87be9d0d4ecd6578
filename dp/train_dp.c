/* train_dp.c: training on several devices of one process, with DataParallel.
 *
 * Read common/train_single.c first; lines that differ from it are marked "dp:".
 */
#include "common/train/trainer.h"
#include "dp/data_parallel.h"   // dp: the wrapper
#include "dp/own/own_wrapper.h" // dp: or one of the user's own
#include "dp/strategy_dp.h"     // dp: its devices and its options

static const char SUMMARY[] = "Trains a network on several devices with DataParallel.\n"
                              "Example: train_dp --devices 4 --model convnet --profile";

int main(int argc, char **argv) {
    Error err = {0};
    TrainConfig config = train_config_default();
    DpOptions dp = dp_options_default(); // dp: --devices, --device-ids
    Options options = {.program = "train_dp", .summary = SUMMARY};
    train_options(&options, &config);
    dp_options(&options, &dp); // dp
    must_do(options_parse(&options, argc, argv, &err), &err);
    must_do(dp_options_check(&dp, &options, &err), &err);    // dp
    if (dp.own) return own_dp_train(&config, &options, &dp); // dp: --wrapper FILE

    DataSource *data = must_get(train_open_data(&config, &err), &err);
    // dp: several devices; the model, the loss and the optimizer are on the first
    Device *devices[DP_MAX_DEVICES];
    int count = must_do(dp_open_devices(&config, &dp, devices, &err), &err);
    Module *model = must_get(train_create_model(&config, data, devices[0], 0, &err), &err);
    // dp: from now on the model's forward runs on all devices
    Module *wrapper = must_get(data_parallel(model, devices, count, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, config.global_batch, !config.no_shuffle,
                               config.drop_last, train_sampler_seed(&config), &err),
                 &err);
    Strategy *strategy = strategy_dp(wrapper, devices[0], sampler); // dp
    Job *job = job_dp(strategy, devices, count);                    // dp

    must_do(trainer_run(&config, &options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
