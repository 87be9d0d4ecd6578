/* own_wrapper.c: a user's DataParallel as a Module, and train_dp's main with it. */
#include "dp/own/own_wrapper.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"
#include "common/own/own_file.h"
#include "common/train/trainer.h"
#include "dp/own/own_dp.h"
#include "dp/strategy_dp.h"

typedef struct OwnWrapper {
    const OwnDp *file;
    void *self; // the file's state
} OwnWrapper;

// ---- the wrapper --------------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    const OwnWrapper *own = self->state;
    Tensor *y = own->file->forward(own->self, tape, x);
    if (!y) own_file_failed("own_dp", "forward", &tape->error);
    if (y && y->device == tape->device && tape->error.status == STATUS_OK) return y;
    return tape_fail(tape, "own_dp", "forward returned a tensor on another device");
}

static void destroy(Module *self) {
    OwnWrapper *own = self->state;
    own->file->close(own->self);
    free(own);
}

// Returns the file's wrapper of the model, which it owns, or NULL with err filled.
static Module *wrap(Module *model, Device *const *devices, int count, const OwnDp *file,
                    Error *err) {
    void *self = file->open(model, devices, count, err);
    if (!self) {
        own_file_failed("own_dp", "open", err);
        return NULL;
    }
    OwnWrapper *own = memory_zalloc(sizeof *own);
    *own = (OwnWrapper){.file = file, .self = self};
    Module *wrapper = module_create("OwnDp", forward);
    wrapper->state = own;
    wrapper->destroy = destroy;
    module_add(wrapper, "", model);
    return wrapper;
}

// ---- the job ------------------------------------------------------------------------------------

static void no_tracks(Job *self, Trace *trace) { // the replicas are the file's
    (void)self, (void)trace;
}

// ---- the program --------------------------------------------------------------------------------

int own_dp_load(DpOptions *dp, const Options *options, Error *err) {
    const OptionUse use = {"cuda-graph", false,
                           "a replayed step would not call --wrapper's functions"};
    if (!dp->wrapper) return 0;
    if (options_check_used(options, &use, 1, err) != 0) return -1;
    dp->own = own_file_load(dp->wrapper, "own_dp", OWN_DP_VERSION, sizeof(OwnDp), err);
    return dp->own ? 0 : -1;
}

// The lines of train_dp.c after the options, with wrap() for data_parallel.
int own_dp_train(const TrainConfig *config, const Options *options, const DpOptions *dp) {
    Error err = {0};
    DataSource *data = must_get(train_open_data(config, &err), &err);
    Device *devices[DP_MAX_DEVICES];
    int count = must_do(dp_open_devices(config, dp, devices, &err), &err);
    Module *model = must_get(train_create_model(config, data, devices[0], 0, &err), &err);
    Module *wrapper = must_get(wrap(model, devices, count, dp->own, &err), &err);
    Sampler *sampler =
        must_get(sampler_whole(data->train.count, config->global_batch, !config->no_shuffle,
                               config->drop_last, train_sampler_seed(config), &err),
                 &err);
    Job *job = job_dp(strategy_dp(wrapper, devices[0], sampler), devices, count);
    job->set_trace = no_tracks;

    must_do(trainer_run(config, options, data, job, &err), &err);

    job->close(job);
    dataset_close(data);
    return STATUS_OK;
}
