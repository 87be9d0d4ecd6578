/* hook_around.c: forwards a hook's calls to the inner hook. */
#include "ddp/features/hook_around.h"

#include "common/base/memory.h"

static int start(void *state, GradBucket *bucket, Error *err) {
    HookAround *around = state;
    if (around->before) around->before(around->context, bucket);
    return around->inner.start(around->inner.state, bucket, err);
}

static int finish(void *state, GradBucket *bucket, Error *err) {
    HookAround *around = state;
    int status = around->inner.finish(around->inner.state, bucket, err);
    if (status == 0 && around->after) around->after(around->context, bucket);
    return status;
}

static void close_around(void *state) {
    HookAround *around = state;
    if (around->inner.close) around->inner.close(around->inner.state);
    if (around->close) around->close(around->context);
    free(around);
}

static int save(void *state, SafeTensors *content, Error *err) {
    const HookAround *around = state;
    return around->inner.save(around->inner.state, content, err);
}

static int load(void *state, const char *path, const SafeTensors *content, RunLog *log,
                Error *err) {
    const HookAround *around = state;
    return around->inner.load(around->inner.state, path, content, log, err);
}

CommHook hook_around(const char *name, HookAround around) {
    HookAround *state = memory_zalloc(sizeof *state);
    *state = around;
    return (CommHook){.name = name,
                      .state = state,
                      .start = start,
                      .finish = finish,
                      .close = close_around,
                      .save = around.inner.save ? save : NULL,
                      .load = around.inner.load ? load : NULL};
}
