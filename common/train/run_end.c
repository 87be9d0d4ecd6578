/* run_end.c: the summary and the trace, written after a run's last step. */
#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/base/trace.h"
#include "common/train/run.h"

// Returns each device's peak memory and, behind them, the bytes moved by all: [devices + 1], freed
// by the caller. Each rank sets its devices' elements of a zero vector, which is then summed over
// the ranks. Collective. NULL with err filled.
static double *gather_totals(const Run *run, Error *err) {
    const Job *job = run->job;
    size_t devices = (size_t)job->devices;
    double *totals = memory_zalloc((devices + 1) * sizeof *totals);
    for (int i = 0; i < job->all_count; i++)
        totals[job->rank + i] = (double)job->all[i]->peak_bytes;
    totals[devices] = (double)(run->moved_bytes + step_graph_moved_bytes(run->graph));
    if (strategy_sum(run->strategy, totals, devices + 1, err) == 0) return totals;
    free(totals);
    return NULL;
}

// Prints the phases' times (--profile).
static void print_profile(Record *record, const Profile *profile) {
    uint64_t total = 0;
    for (Phase phase = 0; phase < PHASE_COUNT; phase++) total += profile->total[phase];
    if (total == 0) return; // no step
    log_say(&record->log, "%-12s %12s %8s%s", "phase", "ms per step", "share",
            record->config->link ? "  (over an emulated link)" : "");
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        if (profile->total[phase] > 0)
            log_say(&record->log, "%-12s %12.4f %7.1f%%", phase_name(phase),
                    record_ms(profile->total[phase]) / (double)profile->steps,
                    100.0 * (double)profile->total[phase] / (double)total);
    log_say(&record->log, "%-12s %12.4f %7.1f%%", "step", record_ms(total) / (double)profile->steps,
            100.0);
    const bool gathers = record->job->strategy->collective_forward;
    // Collectives of ranks overlap backward and so are not a phase. Their exposed part is
    // PHASE_EXPOSED, which also includes other work: a negative hidden share counts as 0.
    const double all_reduces = (double)profile->total_communication;
    const double exposed = (double)profile->total[PHASE_EXPOSED];
    if (all_reduces > 0)
        log_say(&record->log, "%-12s %12.4f %7.1f%% of it hidden behind %s",
                gathers ? "collectives" : "all-reduces", all_reduces / 1e6 / (double)profile->steps,
                exposed < all_reduces ? 100 * (1 - exposed / all_reduces) : 0.0,
                gathers ? "compute" : "backward");
}

// Writes the main process's summary. totals: of gather_totals.
static int summarise(Run *run, const Evaluation *evaluation, const double *totals, Error *err) {
    Record *record = &run->record;
    if (!record->main) return 0;
    if (log_check_stdout(err) != 0) return -1;
    if (run->config->profile) print_profile(record, &run->profile);
    if (!run->config->out) return 0;
    char why[FILE_CAUSE_ROOM];
    if (ferror(record->steps))
        return error_set(err, STATUS_FAILED, "cannot write %s/steps.csv: rows are missing: %s",
                         run->config->out, file_cause(record->lost, why));
    return out_json_summary(run, evaluation, totals, err);
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
    double *totals = gather_totals(run, err);
    if (!totals) return -1;
    trace_mark(run->trace); // all ranks have just synchronized
    int failed = summarise(run, evaluation, totals, err);
    free(totals);
    if (!failed && run->trace) {
        char *path = trace_part(run->config->trace, run->job->rank);
        failed = trace_write(run->trace, path, err);
        free(path);
    }
    if (failed || strategy_barrier(run->strategy, err) != 0) return -1;
    return merge_traces(run, err);
}
