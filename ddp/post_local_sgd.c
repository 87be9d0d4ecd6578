/* post_local_sgd.c: gradients of all, then of a few; parameters now and then. */
#include "ddp/post_local_sgd.h"

#include <string.h>

#include "common/base/memory.h"

static const char ENTRY[] = "post_local_sgd.step";

static int start(void *state, GradBucket *bucket, Error *err) {
    PostLocalSgd *sgd = state;
    bool with_all = (uint64_t)sgd->step < sgd->start_step;
    ProcessGroup *group = with_all ? sgd->group : sgd->subgroup;
    if (bucket->is_last) sgd->step++;
    bucket->work = NULL;
    if (!group) return 0;
    bucket->work =
        pg_start(group, pg_all_reduce(bucket->buffer, bucket->count, PG_F32, bucket->op), err);
    return bucket->work ? 0 : -1;
}

static int finish(void *state, GradBucket *bucket, Error *err) {
    (void)state;
    return bucket->work ? work_wait(bucket->work, NULL, &bucket->done_ns, err) : 0;
}

CommHook post_local_sgd_hook(PostLocalSgd *state) {
    return (CommHook){.name = "post_localSGD",
                      .state = state,
                      .start = start,
                      .finish = finish,
                      .remembers = true};
}

static bool is_time(const ModelAverager *averager) {
    uint64_t step = (uint64_t)averager->step;
    return step >= averager->warmup_steps &&
           (step - averager->warmup_steps) % averager->period == 0;
}

int model_averager_step(ModelAverager *averager, Module *model, ProcessGroup *group, Error *err) {
    CHECK(averager->period > 0, "a model averager with period 0");
    bool now = is_time(averager);
    averager->step++;
    if (!now) return 0;
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    int status = 0;
    for (size_t i = 0; i < parameters.count && status == 0; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        status =
            pg_run(group, pg_all_reduce(tensor->data, tensor_count(tensor), PG_F32, PG_AVG), err);
    }
    named_tensors_free(&parameters);
    return status;
}

SafeTensors post_local_sgd_save(const PostLocalSgd *state) {
    SafeEntry *entry = memory_zalloc(sizeof *entry);
    *entry = (SafeEntry){.dtype = DTYPE_I64, .data = &state->step, .bytes = sizeof state->step};
    memcpy(entry->name, ENTRY, sizeof ENTRY);
    return (SafeTensors){.entries = entry, .count = 1};
}

int post_local_sgd_load(PostLocalSgd *state, const SafeTensors *content, Error *err) {
    const SafeEntry *entry = safetensors_find(content, ENTRY);
    if (!entry || entry->dtype != DTYPE_I64 || entry->bytes != sizeof state->step)
        return error_set(err, STATUS_USAGE, "the file has no %s", ENTRY);
    memcpy(&state->step, entry->data, sizeof state->step);
    return 0;
}
