/* metrics.c: sums of hits, and the metrics computed from them. */
#include "common/train/metrics.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

// Indices into Metrics.sums, one array because one all-reduce sums it. From HITS on: hits (hits.h).
enum { LOSS, COUNT, SAMPLES, HITS };

Metrics metrics_open(const Dataset *set) {
    Metrics metrics = {.set = set, .sum_count = HITS + hits_size(set)};
    metrics.sums = memory_zalloc(metrics.sum_count * sizeof *metrics.sums);
    return metrics;
}

void metrics_close(Metrics *metrics) {
    free(metrics->sums);
}

void metrics_add(Metrics *metrics, Tape *tape, const Batch *batch, const BatchLoss *loss) {
    double *sums = metrics->sums;
    sums[LOSS] += (double)tensor_item(loss->loss) * (double)loss->count;
    sums[COUNT] += (double)loss->count;
    sums[SAMPLES] += (double)batch->count;
    size_t size = metrics->sum_count - HITS;
    int64_t *hits = memory_zalloc(size * sizeof *hits);
    BatchLoss counted = *loss;
    hits_count(tape, metrics->set, &counted);
    device_copy(NULL, hits, tape->device, counted.hits, size * sizeof *hits);
    for (size_t i = 0; i < size; i++) sums[HITS + i] += (double)hits[i];
    free(hits);
}

int metrics_reduce(Metrics *metrics, Strategy *strategy, Error *err) {
    if (strategy_sum(strategy, metrics->sums, metrics->sum_count, err) != 0) return -1;
    CHECK((size_t)metrics->sums[SAMPLES] == metrics->set->count, "evaluated %.0f samples of %zu",
          metrics->sums[SAMPLES], metrics->set->count);
    return 0;
}

Evaluation metrics_result(const Metrics *metrics) {
    const double *sums = metrics->sums;
    Evaluation result = {.loss = sums[LOSS] / sums[COUNT]};
    result.score = hits_score(metrics->set, sums + HITS, sums[SAMPLES], result.loss);
    return result;
}
