/* train_ddp.c: training on several devices, one process each, with DistributedDataParallel.
 *
 * Read common/train_single.c first; lines that differ from it are marked "ddp:". The launcher
 * starts one process of this program per device: a rank.
 */
#include "common/train/trainer.h"
#include "ddp/distributed_data_parallel.h" // ddp: the wrapper
#include "ddp/distributed_sampler.h"       // ddp: this rank's share of the data
#include "ddp/strategy_ddp.h"              // ddp: its device and its options

static const char SUMMARY[] = "Trains a network on several devices with DistributedDataParallel.\n"
                              "Example: ddprun --nproc-per-node 4 train_ddp --model convnet";

int main(int argc, char **argv) {
    Error err = {0};
    TrainConfig config = train_config_default();
    DdpOptions ddp = ddp_options_default(); // ddp: --backend, --bucket-cap-mb, ...
    Options options = {.program = "train_ddp", .summary = SUMMARY};
    train_options(&options, &config);
    ddp_options(&options, &ddp); // ddp
    must_do(options_parse(&options, argc, argv, &err), &err);
    must_do(ddp_options_check(&ddp, &options, &err), &err);         // ddp
    if (ddp.own.ddp) return own_ddp_train(&config, &options, &ddp); // ddp: --wrapper FILE

    DataSource *data = must_get(train_open_data(&config, &err), &err);
    Rendezvous me; // ddp: this rank's number, and the address to meet the others
    must_do(init_from_env(&me, true, &err), &err);
    train_options_alike(&options, me.alike, sizeof me.alike); // ddp: compared between ranks
    Device *device = must_get(ddp_open_device(&config, &me, &err), &err); // ddp: the rank's own
    // ddp: returns when all ranks have joined
    ProcessGroup *group =
        must_get(init_process_group(ddp.backend, &me, device, ddp.timeout_s, &err), &err);
    Module *model = must_get(train_create_model(&config, data, device, me.rank, &err), &err);
    must_do(ddp_options_prepare(&ddp, &config, data, model, group, &err), &err); // ddp: its options
    // ddp: broadcasts rank 0's weights; from now on backward averages gradients over the ranks
    Module *wrapper = must_get(distributed_data_parallel(model, group, &ddp.config, &err), &err);
    // ddp: PyTorch's layout, or the rows of DataParallel's device of the same number
    SamplerOfRank *sampler_of_rank = ddp.blocked ? sampler_blocked : distributed_sampler;
    Sampler *sampler = must_get(
        sampler_of_rank(data->train.count, config.global_batch, me.world_size, me.rank,
                        !config.no_shuffle, config.drop_last, train_sampler_seed(&config), &err),
        &err);
    // ddp: --comm-hook, ...
    must_do(features_add_to(&ddp.features, wrapper, train_steps(&config, sampler), &err), &err);
    Strategy *strategy = strategy_ddp(wrapper, device, sampler); // ddp
    Job *job = job_ddp(strategy, &me);                           // ddp

    must_do(trainer_run(&config, &options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
