/* own_wrapper.c: a user's DistributedDataParallel as a Module and a Strategy, and train_ddp's main
 * with it.
 */
#include "ddp/own/own_wrapper.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "common/own/own_file.h"
#include "common/train/trainer.h"
#include "ddp/ddp_options.h"
#include "ddp/distributed_sampler.h"
#include "ddp/own/own_ddp.h"
#include "ddp/strategy_ddp.h"
#include "ddp/strategy_ranks.h"

typedef struct OwnWrapper {
    const OwnDdp *file;
    void *self;   // the file's state
    bool no_sync; // the next forward's backward is not reduced
} OwnWrapper;

static OwnWrapper *own_of(const Strategy *strategy) {
    return strategy->module->state;
}

// ---- the wrapper --------------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    OwnWrapper *own = self->state;
    Error err = {0};
    const bool reduces = tape->recording && !own->no_sync;
    Phase phase = profile_enter(tape->profile, PHASE_REPLICATE);
    int status = own->file->before_forward(own->self, reduces, &err);
    profile_leave(tape->profile, phase);
    if (status == 0) return module_forward(self->children[0], tape, x);
    own_file_failed("own_ddp", "before_forward", &err);
    return tape_fail(tape, "own_ddp", "%s", err.message);
}

static void destroy(Module *self) {
    OwnWrapper *own = self->state;
    own->file->close(own->self);
    free(own);
}

// MiB of --bucket-cap-mb in bytes; negative: PyTorch's default.
static size_t bucket_bytes(double mebibytes) {
    return (size_t)((mebibytes < 0 ? 25 : mebibytes) * 1024 * 1024);
}

// Returns the file's wrapper of the model, which it owns, or NULL with err filled. Collective.
static Module *wrap(Module *model, ProcessGroup *group, const DdpOptions *ddp, Error *err) {
    const OwnDdp *file = ddp->own.ddp;
    const ReduceOp op = ddp->config.global_normalization ? PG_SUM : PG_AVG;
    void *self = file->open(model, group, op, bucket_bytes(ddp->config.bucket_cap_mb), err);
    if (!self) {
        own_file_failed("own_ddp", "open", err);
        (void)pg_abort(group, err); // ranks whose open waits for this one end with its sentence
        return NULL;
    }
    OwnWrapper *own = memory_zalloc(sizeof *own);
    *own = (OwnWrapper){.file = file, .self = self};
    Module *wrapper = module_create("OwnDdp", forward);
    wrapper->state = own;
    wrapper->destroy = destroy;
    module_add(wrapper, "", model);
    return wrapper;
}

// ---- the strategy -------------------------------------------------------------------------------

static void hold_gradients(Strategy *self, bool hold) {
    own_of(self)->no_sync = hold;
}

static int finish_backward(Strategy *self, Tape *tape, Error *err) {
    const OwnWrapper *own = own_of(self);
    Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    int status = own->file->finish_backward(own->self, err);
    profile_leave(tape->profile, phase);
    strategy_ranks_profile(self, tape->profile);
    return status == 0 ? 0 : own_file_failed("own_ddp", "finish_backward", err);
}

static int sync_buffers(Strategy *self, Error *err) {
    const OwnWrapper *own = own_of(self);
    return own->file->sync_buffers(own->self, err) == 0
               ? 0
               : own_file_failed("own_ddp", "sync_buffers", err);
}

static Job *job_own(Module *wrapper, const DdpOptions *ddp, ProcessGroup *group, Device *device,
                    Sampler *sampler, const Rendezvous *me) {
    Strategy *strategy = strategy_ranks(wrapper->children[0], wrapper, group, device, sampler);
    strategy->global_mean = ddp->config.global_normalization;
    strategy->hold_gradients = hold_gradients;
    strategy->finish_backward = finish_backward;
    strategy->sync_buffers = sync_buffers;
    Job *job = job_ranks(strategy, me);
    return job;
}

// ---- the program --------------------------------------------------------------------------------

// The lines of train_ddp.c after the options, with wrap() for distributed_data_parallel.
int own_ddp_train(const TrainConfig *config, const Options *options, const DdpOptions *ddp) {
    Error err = {0};
    DataSource *data = must_get(train_open_data(config, &err), &err);
    Rendezvous me;
    must_do(init_from_env(&me, true, &err), &err);
    train_options_alike(options, me.alike, sizeof me.alike);
    Device *device = must_get(ddp_open_device(config, &me, &err), &err);
    ProcessGroup *group =
        must_get(init_process_group(ddp->backend, &me, device, ddp->timeout_s, &err), &err);
    Module *model = must_get(train_create_model(config, data, device, me.rank, &err), &err);
    must_do(ddp_options_prepare(ddp, config, data, model, group, &err), &err);
    Module *wrapper = must_get(wrap(model, group, ddp, &err), &err);
    SamplerOfRank *sampler_of_rank = ddp->blocked ? sampler_blocked : distributed_sampler;
    Sampler *sampler = must_get(
        sampler_of_rank(data->train.count, config->global_batch, me.world_size, me.rank,
                        !config->no_shuffle, config->drop_last, train_sampler_seed(config), &err),
        &err);
    Job *job = job_own(wrapper, ddp, group, device, sampler, &me);

    must_do(trainer_run(config, options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
