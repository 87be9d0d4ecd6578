/* post_local_sgd.c: the hook that averages gradients, and the averaging of parameters. */
#include "ddp/features/post_local_sgd.h"

#include "ddp/features/hook_state.h"

static int start(void *state, GradBucket *bucket, Error *err) {
    PostLocalSgd *sgd = state;
    bool with_all = (uint64_t)sgd->step < sgd->start_step;
    ProcessGroup *group = with_all ? sgd->group : sgd->subgroup;
    if (bucket->is_last) sgd->step++;
    bucket->work = NULL;
    if (!group) return 0;
    bucket->work = pg_start(group, grad_bucket_all_reduce(bucket, PG_F32, bucket->op), err);
    return bucket->work ? 0 : -1;
}

static int finish(void *state, GradBucket *bucket, Error *err) {
    (void)state;
    return bucket->work ? pg_work_wait(bucket->work, NULL, &bucket->done_ns, err) : 0;
}

static const char NAME[] = "post_localSGD";

static HookTensor step_tensor(PostLocalSgd *sgd) {
    return (HookTensor){
        .memory = &sgd->step,
        .entry = {.name = "post_local_sgd.step", .dtype = DTYPE_I64, .bytes = sizeof sgd->step}};
}

static int save(void *state, SafeTensors *content, Error *err) {
    PostLocalSgd *sgd = state;
    HookTensor step = step_tensor(sgd);
    return hook_state_gather(&(HookState){NAME, sgd->group, &step, 1}, content, err);
}

static int load(void *state, const char *path, const SafeTensors *content, RunLog *log,
                Error *err) {
    PostLocalSgd *sgd = state;
    HookTensor step = step_tensor(sgd);
    return hook_state_restore(&(HookState){NAME, sgd->group, &step, 1}, path, content, log, err);
}

CommHook post_local_sgd_hook(PostLocalSgd *state) {
    return (CommHook){
        .name = NAME, .state = state, .start = start, .finish = finish, .save = save, .load = load};
}

int model_averager_step(ModelAverager *averager, Module *model, ProcessGroup *group, Error *err) {
    CHECK(averager->period > 0, "a model averager with period 0");
    uint64_t step = (uint64_t)averager->step++;
    if (step < averager->warmup_steps || (step - averager->warmup_steps) % averager->period != 0)
        return 0;
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    int status = 0;
    for (size_t i = 0; i < parameters.count && status == 0; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        status =
            pg_run(group, pg_all_reduce(tensor->data, tensor_count(tensor), PG_F32, PG_AVG), err);
        tensor_changed(tensor);
    }
    named_tensors_free(&parameters);
    return status;
}
