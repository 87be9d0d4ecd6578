/* train_fsdp.c: training on several devices, one process each, with fully_shard: each rank keeps
 * 1/W of every weight, gradient and optimizer state.
 *
 * Read ddp/train_ddp.c first; lines that differ from it are marked "fsdp".
 */
#include "common/train/trainer.h"
#include "ddp/distributed_sampler.h" // ddp: this rank's share of the data
#include "ddp/fsdp/fully_shard.h"    // fsdp: the units
#include "ddp/fsdp/strategy_fsdp.h"  // fsdp
#include "ddp/strategy_ddp.h"        // ddp: its device and its options

static const char SUMMARY[] = "Trains a network on several devices with fully_shard (FSDP2).\n"
                              "Example: ddprun --nproc-per-node 4 train_fsdp --model gpt --steps 9";

int main(int argc, char **argv) {
    Error err = {0};
    TrainConfig config = train_config_default();
    DdpOptions ddp = ddp_options_default();    // ddp: --backend, --bucket-cap-mb, ...
    FsdpOptions fsdp = fsdp_options_default(); // fsdp: --units, ...
    Options options = {.program = "train_fsdp", .summary = SUMMARY}; // fsdp
    train_options(&options, &config);
    fsdp_options(&options, &fsdp, &ddp); // fsdp
    must_do(options_parse(&options, argc, argv, &err), &err);
    must_do(fsdp_options_check(&fsdp, &options, &err), &err);      // fsdp
    if (fsdp.own) return own_fsdp_train(&config, &options, &fsdp); // fsdp: --wrapper FILE

    DataSource *data = must_get(train_open_data(&config, &err), &err);
    Rendezvous me; // ddp: this rank's number, and the address to meet the others
    must_do(init_from_env(&me, true, &err), &err);
    train_options_alike(&options, me.alike, sizeof me.alike); // ddp: compared between ranks
    Device *device = must_get(ddp_open_device(&config, &me, &err), &err); // ddp: the rank's own
    // ddp: returns when all ranks have joined
    ProcessGroup *group =
        must_get(init_process_group(ddp.backend, &me, device, ddp.timeout_s, &err), &err);
    // fsdp: names and shapes only, without memory
    Module *model = must_get(fsdp_build_model(&fsdp, &config, data, device, group, &err), &err);
    // fsdp: blocks first, the root last; each rank gets its shards, then their first values
    for (size_t i = 0; i < fsdp.chosen.count; i++)
        must_do(fully_shard(fsdp.chosen.items[i], group, &fsdp.config, &err), &err);
    must_do(fully_shard(model, group, &fsdp.config, &err), &err);
    must_do(fsdp_fill_model(&fsdp, &config, data, model, &err), &err);
    // ddp: PyTorch's layout, or the rows of DataParallel's device of the same number
    SamplerOfRank *sampler_of_rank = ddp.blocked ? sampler_blocked : distributed_sampler;
    Sampler *sampler = must_get(
        sampler_of_rank(data->train.count, config.global_batch, me.world_size, me.rank,
                        !config.no_shuffle, config.drop_last, train_sampler_seed(&config), &err),
        &err);
    Job *job = job_fsdp(strategy_fsdp(model, &fsdp, device, sampler), &me); // fsdp

    must_do(trainer_run(&config, &options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
