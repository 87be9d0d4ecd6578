/* own_wrapper.c: a model with a user's units as a Module and a Strategy, and train_fsdp's main with
 * it.
 */
#include "ddp/fsdp/own/own_wrapper.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "common/train/trainer.h"
#include "ddp/distributed_sampler.h"
#include "ddp/fsdp/collect.h"
#include "ddp/fsdp/own/own_units.h"
#include "ddp/fsdp/strategy_fsdp.h"
#include "ddp/strategy_ddp.h"
#include "ddp/strategy_ranks.h"
#include "ddp/sync_state.h"

typedef struct OwnWrapper {
    OwnUnits *units;
    ProcessGroup *group;
    SyncState buffers;
    ShardedOptimizer optimizer;
} OwnWrapper;

static OwnWrapper *own_of(const Strategy *strategy) {
    return strategy->module->state;
}

// ---- the wrapper --------------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    return module_forward(self->children[0], tape, x);
}

static void destroy(Module *self) {
    OwnWrapper *own = self->state;
    own_units_close(own->units);
    sync_state_close(&own->buffers);
    free(own->optimizer.parts);
    free(own);
}

// Returns the file's wrapper of the model, which it owns, or NULL with err filled. Collective.
static Module *wrap(Module *model, ProcessGroup *group, const FsdpOptions *fsdp, Error *err) {
    const FsdpModules chosen = fsdp_choose_units(model, fsdp->units);
    const ReduceOp op = fsdp->config.global_normalization ? PG_SUM : PG_AVG;
    OwnUnits *units = own_units_open(model, chosen.items, chosen.count, fsdp->own, group, op, err);
    free(chosen.items);
    if (!units) {
        (void)pg_abort(group, err); // ranks whose open waits for this one end with its sentence
        return NULL;
    }
    OwnWrapper *own = memory_zalloc(sizeof *own);
    *own = (OwnWrapper){.units = units, .group = group};
    own->buffers = sync_state_open(module_tensors(model, MODULE_BUFFERS), group, SYNC_STATE_BYTES);
    Module *wrapper = module_create("OwnFsdp", forward);
    wrapper->state = own;
    wrapper->destroy = destroy;
    module_add(wrapper, "", model);
    return wrapper;
}

// ---- the strategy and the job -------------------------------------------------------------------

static void hold_gradients(Strategy *self, bool hold) {
    own_units_hold_gradients(own_of(self)->units, hold);
}

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    const Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    int status = own_units_finish(own_of(self)->units, err);
    profile_leave(tape->profile, phase);
    strategy_ranks_profile(self, tape->profile);
    return status;
}

static int sync_buffers(Strategy *self, Error *err) {
    return sync_state_run(&own_of(self)->buffers, 0, err);
}

static Job *job_own(Module *wrapper, const FsdpOptions *fsdp, Device *device, Sampler *sampler,
                    const Rendezvous *me) {
    OwnWrapper *own = wrapper->state;
    Module *model = wrapper->children[0];
    Strategy *strategy = strategy_ranks(model, wrapper, own->group, device, sampler);
    strategy->global_mean = fsdp->config.global_normalization;
    strategy->hold_gradients = hold_gradients;
    strategy->finish_backward = finish_backward;
    strategy->sync_buffers = sync_buffers;
    return job_sharded(strategy, sharded_optimizer(&own->optimizer, model, own->group), me);
}

// ---- the program --------------------------------------------------------------------------------

// The lines of train_fsdp.c after the options, with wrap() for fully_shard.
int own_fsdp_train(const TrainConfig *config, const Options *options, const FsdpOptions *fsdp) {
    Error err = {0};
    const DdpOptions *ddp = fsdp->ranks;
    DataSource *data = must_get(train_open_data(config, &err), &err);
    Rendezvous me;
    must_do(init_from_env(&me, true, &err), &err);
    train_options_alike(options, me.alike, sizeof me.alike);
    Device *device = must_get(ddp_open_device(config, &me, &err), &err);
    ProcessGroup *group =
        must_get(init_process_group(ddp->backend, &me, device, ddp->timeout_s, &err), &err);
    Module *model = must_get(train_create_model(config, data, device, me.rank, &err), &err);
    must_do(fsdp_prepare_model(fsdp, config, data, model, group, &err), &err);
    Module *wrapper = must_get(wrap(model, group, fsdp, &err), &err);
    SamplerOfRank *sampler_of_rank = ddp->blocked ? sampler_blocked : distributed_sampler;
    Sampler *sampler = must_get(
        sampler_of_rank(data->train.count, config->global_batch, me.world_size, me.rank,
                        !config->no_shuffle, config->drop_last, train_sampler_seed(config), &err),
        &err);
    Job *job = job_own(wrapper, fsdp, device, sampler, &me);

    must_do(trainer_run(config, options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
