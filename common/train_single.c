/* train_single.c: training on one device.
 *
 * Read this first, then compare dp/train_dp.c and ddp/train_ddp.c, whose additional lines are
 * marked. The training loop and the five lines of a step are in common/train/trainer.c. The trainer
 * calls a Strategy (common/train/strategy.h) in every step and a Job (common/train/job.h) around
 * the steps; the three programs differ in these two.
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
    Job *job = job_single(strategy);

    must_do(trainer_run(&config, &options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
