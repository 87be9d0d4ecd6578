/* metrics.c: sums, and what is made of them. */
#include "common/train/metrics.h"

#include <math.h>

#include "common/base/memory.h"

// The sums, in one array because they travel together. From CONFUSION on [classes, classes + 1].
enum { LOSS, COUNT, SAMPLES, CORRECT, CONFUSION };

Metrics metrics_open(const Dataset *set) {
    size_t cells = set->dense ? set->classes * (set->classes + 1) : 0;
    Metrics metrics = {.set = set, .sum_count = CONFUSION + cells};
    metrics.sums = memory_zalloc(metrics.sum_count * sizeof *metrics.sums);
    return metrics;
}

void metrics_close(Metrics *metrics) {
    free(metrics->sums);
    *metrics = (Metrics){0};
}

void metrics_predict(Tape *tape, const Tensor *logits, int32_t *predicted) {
    size_t inner = logits->shape[2] * logits->shape[3], count = logits->shape[0] * inner;
    int32_t *on_device = tape_scratch(tape, count * sizeof *on_device);
    device_kernels(tape->device)
        ->pixels->predict_pixels(tensor_f32(logits), on_device, logits->shape[0], logits->shape[1],
                                 inner);
    device_copy(NULL, predicted, tape->device, on_device, count * sizeof *predicted);
}

void metrics_count_pixels(double *confusion, size_t classes, const int64_t *truth,
                          const int32_t *predicted, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (truth[i] < 0) continue;
        size_t column = predicted[i] < 0 ? classes : (size_t)predicted[i];
        confusion[(size_t)truth[i] * (classes + 1) + column]++;
    }
}

void metrics_add(Metrics *metrics, Tape *tape, const Batch *batch, const BatchLoss *loss) {
    double *sums = metrics->sums;
    sums[LOSS] += (double)tensor_item(loss->loss) * (double)loss->count;
    sums[COUNT] += (double)loss->count;
    sums[SAMPLES] += (double)batch->count;
    if (metrics->set->dense) {
        size_t count = batch->count * dataset_label_size(metrics->set);
        int32_t *predicted = memory_zalloc(count * sizeof *predicted);
        metrics_predict(tape, loss->outputs, predicted);
        metrics_count_pixels(sums + CONFUSION, metrics->set->classes, batch->labels, predicted,
                             count);
        free(predicted);
    } else if (batch->labels) {
        int64_t *on_device = tape_scratch(tape, sizeof *on_device), correct;
        device_kernels(tape->device)
            ->loss->count_correct(
                (Labels){loss->target->data, batch->count, loss->outputs->shape[1]},
                tensor_f32(loss->outputs), on_device);
        device_copy(NULL, &correct, tape->device, on_device, sizeof correct);
        sums[CORRECT] += (double)correct;
    }
}

int metrics_reduce(Metrics *metrics, Strategy *strategy, Error *err) {
    if (strategy_sum(strategy, metrics->sums, metrics->sum_count, err) != 0) return -1;
    CHECK((size_t)metrics->sums[SAMPLES] == metrics->set->count, "evaluated %.0f samples of %zu",
          metrics->sums[SAMPLES], metrics->set->count);
    return 0;
}

double metrics_mean_iou(const double *confusion, size_t classes) {
    double total = 0, present = 0;
    for (size_t k = 0; k < classes; k++) {
        double is = 0, said = 0, both = confusion[k * (classes + 1) + k];
        for (size_t j = 0; j <= classes; j++) is += confusion[k * (classes + 1) + j];
        for (size_t i = 0; i < classes; i++) said += confusion[i * (classes + 1) + k];
        if (is + said == 0) continue;
        total += both / (is + said - both);
        present++;
    }
    return present > 0 ? total / present : NAN;
}

Evaluation metrics_result(const Metrics *metrics) {
    const double *sums = metrics->sums;
    size_t classes = metrics->set->classes;
    Evaluation result = {.loss = sums[LOSS] / sums[COUNT], .accuracy = NAN, .mean_iou = NAN};
    if (metrics->set->dense) {
        double correct = 0;
        for (size_t k = 0; k < classes; k++) correct += sums[CONFUSION + k * (classes + 1) + k];
        result.accuracy = correct / sums[COUNT];
        result.mean_iou = metrics_mean_iou(sums + CONFUSION, classes);
    } else if (classes) {
        result.accuracy = sums[CORRECT] / sums[COUNT];
    }
    return result;
}
