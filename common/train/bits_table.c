/* bits_table.c: see bits_table.h.
 *
 * Both wrappers sum gradients in device order. Bits are equal if each device computes the same
 * numbers from the same rows, and if dividing each rank's loss rounds as DataParallel's division.
 */
#include "common/train/bits_table.h"

// ---- conditions ---------------------------------------------------------------------------------

static bool interleaves(const Run *run) {
    return strategy_processes(run->strategy) == 1 || run->strategy->sampler->interleaved;
}

static bool averages(const Run *run) { // DistributedDataParallel's default
    return !run->strategy->global_mean;
}

// Dividing by a power of two is exact.
static bool averages_and_rounds(const Run *run) {
    int devices = run->job->devices;
    return averages(run) && (devices & (devices - 1)) != 0;
}

static bool averages_uneven_shares(const Run *run) {
    const Sampler *sampler = run->strategy->sampler;
    for (size_t i = 0; averages(run) && i < sampler->batch_count; i++)
        if (sampler->global[i] % (size_t)run->job->devices != 0) return true;
    return false;
}

static bool averages_pixels(const Run *run) {
    return averages(run) && run->data->train.dense;
}

static bool averages_in_fp16(const Run *run) {
    return averages(run) && run->config->amp == PRECISION_F16;
}

static bool accumulates(const Run *run) {
    return run->config->accumulate_steps > 1;
}

static bool mines(const Run *run) {
    return run->config->ohem_threshold > 0 || run->config->ohem_probability > 0;
}

static bool uses_threads(const Run *run) {
    return run->config->threads > 1;
}

static bool uses_gpus(const Run *run) {
    return !device_is_cpu(run->strategy->device);
}

static bool changes_gradients(const Run *run) {
    return options_find(run->options, "comm-hook") &&
           !options_is(run->options, "comm-hook", "none") &&
           !options_is(run->options, "comm-hook", "allreduce");
}

static bool adds_fast(const Run *run) {
    return options_given(run->options, "fast-sums");
}

static bool synchronizes_batch_norm(const Run *run) {
    return options_given(run->options, "sync-batch-norm");
}

// ---- the table ----------------------------------------------------------------------------------

static const char BLOCKED[] = "--sampler blocked";
static const char GLOBAL[] = "--normalize global";

// clang-format off
static const BitsRow ROWS[] = {
    // Bits differ when ...
    {"sampler", interleaves, "interleaved",
     "ranks take rows in turns, DataParallel's devices take blocks", BLOCKED},
    {"normalize", averages_and_rounds, "average, on W ranks, W no power of two",
     "dividing by W rounds", GLOBAL},
    {"normalize", averages_uneven_shares, "average, of batches that W does not divide",
     "a row of a smaller share weighs more", GLOBAL},
    {"normalize", averages_pixels, "average, of pixels",
     "ranks may count different numbers of labelled pixels", GLOBAL},
    {"amp", averages_in_fp16, "fp16, with an average",
     "gradients W times as large overflow or underflow fp16 in other steps", GLOBAL},
    {"accumulate-steps", accumulates, "more than 1",
     "each rank adds up its parts before ranks are added up", NULL},
    {"ohem-threshold|ohem-probability|ohem-min", mines, "given",
     "each rank mines the pixels of its own rows", NULL},
    {"threads", uses_threads, "more than 1",
     "products on several threads may round otherwise", NULL},
    {"device|tf32|cuda-graph", uses_gpus, "GPUs", "GPUs add up in another order", NULL},
    {"comm-hook|powersgd-rank|powersgd-start", changes_gradients, "fp16, bf16, noop or powersgd",
     "the communication hook changes gradients", NULL},
    {"fast-sums", adds_fast, "given", "MPI adds up in another order", NULL},
    {"sync-batch-norm", synchronizes_batch_norm, "given",
     "DataParallel has no SyncBatchNorm", NULL},

    // Bits are equal for every value, because ...
    {"seed|load-init|strip-prefix|resume", NULL, NULL,
     "both begin with the same weights and state", NULL},
    {"model|hidden|layers|heads|embedding|context|vocabulary|loss|pos-weight", NULL, NULL,
     "a row's output and loss are computed by the same operations", NULL},
    {"data|ignore-label|augment|no-shuffle|drop-last|sampler-seed|global-batch|epochs|steps", NULL,
     NULL, "the same rows are in the same batches", NULL},
    {"optimizer|lr|momentum|nesterov|weight-decay|betas|eps|clip-grad-norm|schedule|warmup-steps|"
     "warmup-start|step-every|gamma|power", NULL, NULL,
     "computed from reduced gradients, which are equal", NULL},
    {"zero-optimizer", NULL, NULL, "each element is stepped once, by the same operations", NULL},
    {"backend|bucket-cap-mb|no-overlap|no-gradient-as-bucket-view", NULL, NULL,
     "an element is summed in rank order, whoever carries it and when", NULL},
    {"static-graph|find-unused-parameters", NULL, NULL,
     "a gradient that no rank computed stays as it is in both", NULL},
    {"no-broadcast-buffers", NULL, NULL,
     "rank 0's buffers are saved, and it has device 0's rows", NULL},
    {"devices|device-ids|bind|link|timeout-s", NULL, NULL,
     "where and when is no part of a sum: devices are numbered like ranks", NULL},
    {"log-every|out|save|save-every|keep-epochs|save-init|dump-grads|dump-step|dump-images|sample|"
     "no-eval|profile|trace", NULL, NULL, "reads the weights, and leaves them as they are", NULL},
    {"summary|dry-run|evaluate", NULL, NULL, "trains nothing", NULL},
};
// clang-format on

const BitsRow *bits_table(size_t *count) {
    *count = sizeof ROWS / sizeof *ROWS;
    return ROWS;
}
