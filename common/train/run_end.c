/* run_end.c: see run_end.h. */
#include "common/train/run_end.h"

#include <math.h>

#include "common/base/memory.h"
#include "common/base/trace.h"
#include "common/base/trace_merge.h"

// Gathers every device's peak memory, and the sum of the bytes moved: each rank sets its devices'
// elements of a zero vector, which is then summed over the ranks. Collective. 0 or -1.
static int gather_peaks(const Run *run, Summary *summary, Error *err) {
    const Job *job = run->job;
    size_t devices = (size_t)job->devices;
    double *values = memory_zalloc((devices + 1) * sizeof *values);
    for (int i = 0; i < job->all_count; i++)
        values[job->rank + i] = (double)job->all[i]->peak_bytes;
    values[devices] = (double)(job->moved_bytes(job) + step_graph_moved_bytes(run->graph));
    int failed = strategy_sum(run->strategy, values, devices + 1, err);
    summary->peak_bytes_device0 = values[0];
    summary->peak_bytes_other = devices > 1 ? 0 : NAN;
    for (size_t i = 1; i < devices; i++)
        summary->peak_bytes_other = fmax(summary->peak_bytes_other, values[i]);
    summary->moved_bytes = values[devices];
    free(values);
    return failed;
}

static int summarise(Run *run, const Evaluation *evaluation, Error *err) {
    const Dataset *test = &run->data->test;
    Summary summary = {.profile = &run->profile,
                       .steps = run->profile.steps,
                       .parameters = module_count(run->strategy->model, MODULE_PARAMETERS),
                       .samples_per_step = run->config->global_batch,
                       .best = run->progress.best,
                       .scale = run->step->scaler.scale,
                       .skipped_steps = run->step->scaler.skipped,
                       .test = *evaluation,
                       .has_accuracy = test->classes > 0 && !test->dense && !test->tokens,
                       .has_mean_iou = test->dense,
                       .has_bits = test->tokens != NULL};
    if (gather_peaks(run, &summary, err) != 0) return -1;
    trace_mark(run->trace); // all ranks have just synchronized
    return record_summary(&run->record, &summary, err);
}

static int write_trace(Run *run, Error *err) {
    if (!run->trace) return 0;
    char *path = trace_part(run->config->trace, run->job->rank);
    int failed = trace_write(run->trace, path, err);
    free(path);
    return failed;
}

// The main process merges all ranks' traces. Precondition: all ranks have written theirs.
static int merge_traces(Run *run, Error *err) {
    const Strategy *strategy = run->strategy;
    int processes = strategy_processes(strategy);
    if (!run->trace || !strategy_is_main(strategy) || processes == 1) return 0;
    int missing = trace_merge_ranks(run->config->trace, processes, err);
    if (missing > 0)
        log_say(&run->record.log,
                "%s: the parts of %d other rank%s are not on this machine; merge_traces adds them",
                run->config->trace, missing, missing == 1 ? "" : "s");
    return missing < 0 ? -1 : 0;
}

int run_end(Run *run, const Evaluation *evaluation, Error *err) {
    run_enter(run, "shutdown");
    if (summarise(run, evaluation, err) != 0 || write_trace(run, err) != 0 ||
        strategy_barrier(run->strategy, err) != 0)
        return -1;
    return merge_traces(run, err);
}
