/* train_ddp.c: training on several devices, one process each, with DistributedDataParallel.
 *
 * Read common/train_single.c first: the lines that differ are marked "ddp:".
 */
#include "common/train/trainer.h"
#include "ddp/distributed_data_parallel.h" // ddp: the wrapper and its Strategy
#include "ddp/init.h"                      // ddp: finding the other ranks
#include "ddp/options.h"                   // ddp: its own options

static const char SUMMARY[] = "Trains a network on several devices with DistributedDataParallel.\n"
                              "Example: ddprun --nproc-per-node 4 train_ddp --model convnet";

// ddp: meets the other ranks; alone if nobody started several.
static ProcessGroup *open_group(const DdpOptions *ddp, Rendezvous *me, Error *err) {
    if (init_from_env(me, true, err) != 0) return NULL;
    if (me->world_size == 1)
        fprintf(stderr, "one rank; for more: ddprun --nproc-per-node N train_ddp ...\n");
    return init_process_group(ddp->backend, me, ddp->timeout_s, err);
}

static Strategy *open_strategy(const TrainConfig *config, const DataSource *data,
                               const DdpOptions *ddp, Error *err) { // ddp: its options
    Rendezvous me;
    ProcessGroup *group = open_group(ddp, &me, err); // ddp
    if (!group) return NULL;
    Device *device = train_open_device(config, me.local_rank, err); // ddp: this rank's
    if (!device) return NULL;
    Module *model = train_create_model(config, data, device, me.rank, err); // ddp: its own weights
    if (!model) return NULL;
    const DdpConfig wrap = ddp_options_config(ddp);
    Module *wrapper = distributed_data_parallel(model, group, &wrap, err); // ddp: rank 0's for all
    if (!wrapper) return NULL;
    Strategy *strategy = strategy_ddp(model, wrapper, group, device, ddp->sampler);
    strategy_ddp_set_heartbeat(strategy, heartbeat_open(me.local_rank)); // ddp: ddprun watches
    return strategy;
}

int main(int argc, char **argv) {
    TrainConfig config = train_config_default();
    Options options = {.program = "train_ddp", .summary = SUMMARY};
    train_options(&options, &config);
    DdpOptions ddp = ddp_options_default(); // ddp: its own options
    ddp_options(&options, &ddp);

    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    DataSource *data = train_open_data(&config, &err);
    if (!data) error_exit(&err);
    Strategy *strategy = open_strategy(&config, data, &ddp, &err);
    if (!strategy) error_exit(&err);

    if (trainer_run(&config, &options, data, strategy, &err) != 0) error_exit(&err);

    strategy->close(strategy);
    dataset_close(data);
    return STATUS_OK;
}
