/* strategy_fsdp.c: the trainer's Strategy and Job of one rank of fully_shard. */
#include "ddp/fsdp/strategy_fsdp.h"

#include "common/nn/tape.h"
#include "ddp/features/sync_batch_norm.h"
#include "ddp/fsdp/collect.h"
#include "ddp/fsdp/fully_shard.h"
#include "ddp/strategy_ranks.h"

// ---- the model ----------------------------------------------------------------------------------

int fsdp_prepare_model(const FsdpOptions *fsdp, const TrainConfig *config, const DataSource *data,
                       Module *model, ProcessGroup *group, Error *err) {
    if (strategy_ranks_check_data(config, data, group, err) != 0) return -1;
    if (!fsdp->sync_batch_norm) return 0;
    if (!module_has_type(model, "BatchNorm"))
        return error_set(err, STATUS_USAGE,
                         "--sync-batch-norm has no effect: the model has no batch norm");
    return sync_batch_norm_convert(model, group, err) ? 0 : -1;
}

Module *fsdp_build_model(FsdpOptions *fsdp, const TrainConfig *config, const DataSource *data,
                         Device *device, ProcessGroup *group, Error *err) {
    fsdp->config.device = device;
    fsdp->config.precision = config->amp;
    fsdp->shapes = device_open("dry-cpu:0", err);
    if (!fsdp->shapes) return NULL;
    Module *model = train_build_model(config, data, fsdp->shapes, pg_rank(group), err);
    if (!model) return NULL;
    fsdp->chosen = fsdp_choose_units(model, fsdp->units);
    return fsdp_prepare_model(fsdp, config, data, model, group, err) == 0 ? model : NULL;
}

static int save_init(const TrainConfig *config, Module *model, Error *err) {
    SafeTensors whole = {0};
    if (!config->save_init) return 0;
    int failed = fsdp_collect(model, FSDP_STATE, NULL, &whole, err);
    if (!failed && pg_rank(fsdp_group(model)) == 0)
        failed = safetensors_save_whole(config->save_init, model, false, &whole, err);
    safetensors_free(&whole);
    return failed;
}

int fsdp_fill_model(FsdpOptions *fsdp, const TrainConfig *config, const DataSource *data,
                    Module *model, Error *err) {
    device_close(fsdp->shapes); // every tensor is on the rank's own device now
    free(fsdp->chosen.items);
    if (train_fill_model(config, data, model, err) != 0) return -1;
    return save_init(config, model, err);
}

// ---- the strategy -------------------------------------------------------------------------------

static void hold_gradients(Strategy *self, bool hold) {
    fsdp_set_requires_gradient_sync(self->model, !hold);
}

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    int status = fsdp_finish_backward(self->model, tape->profile, err);
    strategy_ranks_profile(self, tape->profile);
    return status;
}

static int sync_buffers(Strategy *self, Error *err) {
    return fsdp_sync_buffers(self->model, err);
}

Strategy *strategy_fsdp(Module *model, const FsdpOptions *fsdp, Device *device, Sampler *sampler) {
    Strategy *strategy = strategy_ranks(model, model, fsdp_group(model), device, sampler);
    strategy->global_mean = fsdp->config.global_normalization;
    strategy->hold_gradients = hold_gradients;
    strategy->finish_backward = finish_backward;
    strategy->sync_buffers = sync_buffers;
    return strategy;
}

// ---- the job ------------------------------------------------------------------------------------

static int save_state(Job *self, const Optimizer *optimizer, SafeTensors *state, Error *err) {
    const Strategy *strategy = self->strategy;
    return collect_shards(strategy->model, strategy_ranks_group(strategy), FSDP_STATE, optimizer,
                          state, err);
}

static int gather_gradients(Job *self, SafeTensors *gradients, Error *err) {
    const Strategy *strategy = self->strategy;
    return collect_shards(strategy->model, strategy_ranks_group(strategy), FSDP_GRADIENTS, NULL,
                          gradients, err);
}

static const char *unrecordable(const Job *self) {
    (void)self;
    return "fully_shard";
}

Job *job_sharded(Strategy *strategy, OptimizerSharding *sharding, const Rendezvous *me) {
    Job *job = job_ranks(strategy, me);
    strategy->collective_forward = true;
    job->name = "fsdp";
    job->sharding = sharding;
    job->save_state = save_state;
    job->gather_gradients = gather_gradients;
    job->unrecordable = unrecordable;
    return job;
}

Job *job_fsdp(Strategy *strategy, const Rendezvous *me) {
    return job_sharded(strategy, fsdp_sharding(strategy->model), me);
}
