/* bits_table.c: see bits_table.h; announces at the start of a run whether its bits are equal.
 *
 * Both wrappers sum gradients in device order. Bits are equal if each device computes the same
 * numbers from the same rows, and if dividing each rank's loss rounds as DataParallel's division.
 */
#include "common/train/bits_table.h"

#include <string.h>

#include "common/base/format.h"

// ---- conditions ---------------------------------------------------------------------------------

// Sets holds[c] to whether condition c holds for the run.
static void find_conditions(const Run *run, bool holds[BITS_CONDITIONS]) {
    const TrainConfig *config = run->config;
    const Options *options = run->options;
    const Sampler *sampler = run->strategy->sampler;
    const size_t devices = (size_t)run->job->devices;
    const bool averages = !run->strategy->global_mean; // DistributedDataParallel's default
    holds[BITS_NEVER] = false;
    holds[BITS_INTERLEAVED] = strategy_processes(run->strategy) == 1 || sampler->interleaved;
    // Dividing by a power of two is exact.
    holds[BITS_ROUNDED] = averages && (devices & (devices - 1)) != 0;
    holds[BITS_UNEVEN] = false;
    for (size_t i = 0; averages && i < sampler->batch_count; i++)
        if (sampler->global[i] % devices != 0) holds[BITS_UNEVEN] = true;
    holds[BITS_PIXELS] = averages && run->data->train.dense;
    holds[BITS_FP16] = averages && config->amp == PRECISION_F16;
    holds[BITS_ACCUMULATED] = config->accumulate_steps > 1;
    holds[BITS_MINED] = config->ohem_threshold > 0 || config->ohem_probability > 0;
    holds[BITS_THREADS] = config->threads > 1;
    holds[BITS_GPUS] = !device_is_cpu(run->strategy->device);
    holds[BITS_HOOK] = options_find(options, "comm-hook") &&
                       !options_is(options, "comm-hook", "none") &&
                       !options_is(options, "comm-hook", "allreduce");
    holds[BITS_FAST_SUMS] = options_given(options, "fast-sums");
    holds[BITS_SYNC_BATCH_NORM] = options_given(options, "sync-batch-norm");
    holds[BITS_WRAPPER] = options_given(options, "wrapper");
    holds[BITS_ALL_REDUCE] = options_given(options, "all-reduce");
}

// ---- the table ----------------------------------------------------------------------------------

static const char BLOCKED[] = "--sampler blocked";
static const char GLOBAL[] = "--normalize global";

// clang-format off
static const BitsRow ROWS[] = {
    // Bits differ when ...
    {"sampler", BITS_INTERLEAVED, "interleaved",
     "ranks take rows in turns, DataParallel's devices take blocks", BLOCKED},
    {"normalize", BITS_ROUNDED, "average, on W ranks, W no power of two",
     "dividing by W rounds", GLOBAL},
    {"normalize", BITS_UNEVEN, "average, of batches that W does not divide",
     "a row of a smaller share weighs more", GLOBAL},
    {"normalize", BITS_PIXELS, "average, of pixels",
     "ranks may count different numbers of labelled pixels", GLOBAL},
    {"amp", BITS_FP16, "fp16, with an average",
     "gradients W times as large overflow or underflow fp16 in other steps", GLOBAL},
    {"accumulate-steps", BITS_ACCUMULATED, "more than 1",
     "each rank adds up its parts before ranks are added up", NULL},
    {"ohem-threshold|ohem-probability|ohem-min", BITS_MINED, "given",
     "each rank mines the pixels of its own rows", NULL},
    {"threads", BITS_THREADS, "more than 1",
     "products on several threads may round otherwise", NULL},
    {"device|tf32|cuda-graph", BITS_GPUS, "GPUs", "GPUs add up in another order", NULL},
    {"comm-hook|powersgd-rank|powersgd-start", BITS_HOOK, "fp16, bf16, noop or powersgd",
     "the communication hook changes gradients", NULL},
    {"fast-sums", BITS_FAST_SUMS, "given", "MPI adds up in another order", NULL},
    {"sync-batch-norm", BITS_SYNC_BATCH_NORM, "given",
     "DataParallel has no SyncBatchNorm", NULL},
    {"wrapper", BITS_WRAPPER, "given", "the wrapper is the user's own", NULL},
    {"all-reduce", BITS_ALL_REDUCE, "given", "the all-reduce is the user's own", NULL},

    // Bits are equal for every value, because ...
    {"seed|load-init|strip-prefix|resume", BITS_NEVER, NULL,
     "both begin with the same weights and state", NULL},
    {"model|hidden|layers|heads|embedding|context|vocabulary|loss|pos-weight", BITS_NEVER, NULL,
     "a row's output and loss are computed by the same operations", NULL},
    {"data|ignore-label|augment|no-shuffle|drop-last|sampler-seed|global-batch|epochs|steps",
     BITS_NEVER, NULL, "the same rows are in the same batches", NULL},
    {"optimizer|lr|momentum|nesterov|weight-decay|betas|eps|clip-grad-norm|schedule|warmup-steps|"
     "warmup-start|step-every|gamma|power", BITS_NEVER, NULL,
     "computed from reduced gradients, which are equal", NULL},
    {"zero-optimizer|units|no-reshard-after-forward|unshard-in-step", BITS_NEVER, NULL,
     "each element is summed in rank order and stepped once, by the same operations", NULL},
    {"backend|bucket-cap-mb|no-overlap|no-gradient-as-bucket-view", BITS_NEVER, NULL,
     "an element is summed in rank order, at any time and over any backend", NULL},
    {"static-graph|find-unused-parameters", BITS_NEVER, NULL,
     "a gradient that no rank computed stays as it is in both", NULL},
    {"no-broadcast-buffers", BITS_NEVER, NULL,
     "rank 0's buffers are saved, and it has device 0's rows", NULL},
    {"devices|device-ids|bind|link|timeout-s|memory-limit", BITS_NEVER, NULL,
     "where and when is no part of a sum: devices are numbered like ranks", NULL},
    {"log-every|out|save|save-every|keep-epochs|save-init|dump-grads|dump-step|dump-images|sample|"
     "no-eval|profile|trace", BITS_NEVER, NULL, "reads the weights, and leaves them as they are",
     NULL},
    {"summary|dry-run|evaluate", BITS_NEVER, NULL, "trains nothing", NULL},
};
// clang-format on

const BitsRow *bits_table(size_t *count) {
    *count = sizeof ROWS / sizeof *ROWS;
    return ROWS;
}

// ---- the announcement ---------------------------------------------------------------------------

enum { TEXT_MAX = 1024 };

#define EQUAL "bits: weights, buffers and optimizer state equal"

// A rank's gradients are W times DataParallel's, then divided by W. Scaling by a power of two is
// exact except for subnormal numbers (below 2^-126).
#define UNLESS ", unless a gradient leaves float32's normal range"

// The promise of fully_shard, whose bits equal DistributedDataParallel's with the same options.
static void announce_fsdp(RunLog *log, const bool holds[BITS_CONDITIONS]) {
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const BitsCondition breaks = ROWS[i].breaks;
        const bool matters =
            breaks == BITS_THREADS || breaks == BITS_GPUS || breaks == BITS_WRAPPER;
        if (!holds[breaks] || !matters) continue;
        log_say(log, "bits: not promised against train_ddp (%s)", ROWS[i].reason);
        return;
    }
    log_say(log, EQUAL " train_ddp's with the same options");
}

void bits_announce(Run *run) {
    const Job *job = run->job;
    RunLog *log = &run->record.log;
    if (job->devices == 1 || run->config->evaluate || run->config->dry_run) return;
    // The rows that break the promise: "reason: remedy; reason", the remedies, each once, and the
    // reasons without remedy.
    char reasons[TEXT_MAX] = "", remedies[TEXT_MAX] = "", obstacles[TEXT_MAX] = "";
    bool holds[BITS_CONDITIONS];
    find_conditions(run, holds);
    if (run->strategy->collective_forward) announce_fsdp(log, holds);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const char *reason = ROWS[i].reason, *remedy = ROWS[i].remedy;
        if (!holds[ROWS[i].breaks]) continue;
        format_append(reasons, TEXT_MAX, "%s%s", *reasons ? "; " : "", reason);
        if (remedy) format_append(reasons, TEXT_MAX, ": %s", remedy);
        if (remedy && !strstr(remedies, remedy)) format_append(remedies, TEXT_MAX, " %s", remedy);
        if (!remedy) format_append(obstacles, TEXT_MAX, "%s%s", *obstacles ? "; " : "", reason);
    }
    if (strategy_processes(run->strategy) == 1 && *obstacles)
        log_say(log, "bits: not promised against DistributedDataParallel (%s)", obstacles);
    else if (strategy_processes(run->strategy) == 1)
        log_say(log, EQUAL " DistributedDataParallel's on %d ranks with%s%s", job->devices,
                remedies, strstr(remedies, GLOBAL) ? "" : UNLESS);
    else if (*reasons)
        log_say(log, "bits: not promised against DataParallel (%s)", reasons);
    else
        log_say(log, EQUAL " DataParallel's on %d devices%s", job->devices,
                run->strategy->global_mean ? "" : UNLESS);
}
