/* train_ddp.c: training on several devices, one process each, with DistributedDataParallel.
 *
 * Read common/train_single.c first: what differs from it is marked "ddp:".
 */
#include "common/train/trainer.h"
#include "ddp/options.h"      // ddp: its own options, and finding the other ranks
#include "ddp/strategy_ddp.h" // ddp: its own Strategy

static const char SUMMARY[] = // ddp: what --help says
    "Trains a network on several devices with DistributedDataParallel.\n"
    "Example: ddprun --nproc-per-node 4 train_ddp --model convnet";

static Strategy *open_strategy(const TrainConfig *config, const DataSource *data,
                               const DdpOptions *ddp, Error *err) { // ddp: its own options
    Rendezvous me;                                                  // ddp: which rank this is
    Device *device = ddp_options_open(config, &me, err);            // ddp: its own
    if (!device) return NULL;                                       // ddp: it is not there
    ProcessGroup *group = ddp_options_join(ddp, &me, device, err);  // ddp: meets the other ranks
    if (!group) return NULL;                                        // ddp: they did not come
    Module *model = train_create_model(config, data, device, me.rank, err); // ddp: own weights
    if (!model) return NULL;
    Module *wrapper = ddp_options_wrap(ddp, model, group, err); // ddp: rank 0's weights for all
    if (!wrapper) return NULL;                                  // ddp: the models differ
    Strategy *strategy = strategy_ddp(model, wrapper, group, device, ddp->sampler); // ddp: one rank
    strategy->fake_hosts = me.fake_hosts; // ddp: do times mean something?
    strategy_ddp_set_heartbeat(strategy, heartbeat_open(me.local_rank)); // ddp: for ddprun
    return strategy;                                                     // ddp: after the heartbeat
}

int main(int argc, char **argv) {
    TrainConfig config = train_config_default();
    Options options = {.program = "train_ddp", .summary = SUMMARY}; // ddp: its name
    train_options(&options, &config);
    DdpOptions ddp = ddp_options_default(); // ddp: its own options
    ddp_options(&options, &ddp);            // ddp: in the same table

    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    if (ddp_options_check(&ddp, &options, &err) != 0) error_exit(&err); // ddp: of no effect
    DataSource *data = train_open_data(&config, &err);
    if (!data) error_exit(&err);
    Strategy *strategy = open_strategy(&config, data, &ddp, &err); // ddp: with its options
    if (!strategy) error_exit(&err);

    if (trainer_run(&config, &options, data, strategy, &err) != 0) error_exit(&err);

    strategy->close(strategy);
    dataset_close(data);
    return STATUS_OK;
}
