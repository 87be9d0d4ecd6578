/* hits.c: counts hits on the device; computes scores on the host. */
#include "common/train/hits.h"

#include <math.h>

#include "common/nn/tape.h"

size_t hits_size(const Dataset *set) {
    if (set->dense) return set->classes * (set->classes + 1);
    return set->classes ? 1 : 0;
}

static int32_t *predict_on_device(Tape *tape, const Tensor *logits, size_t *count) {
    size_t inner = logits->shape[2] * logits->shape[3];
    *count = logits->shape[0] * inner;
    int32_t *predicted = tape_scratch(tape, *count * sizeof *predicted);
    device_kernels(tape->device)
        ->pixels->predict_pixels(tensor_f32(logits), predicted, logits->shape[0], logits->shape[1],
                                 inner);
    return predicted;
}

void hits_predict(Tape *tape, const Tensor *logits, int32_t *predicted) {
    size_t count;
    const int32_t *on_device = predict_on_device(tape, logits, &count);
    device_copy(NULL, predicted, tape->device, on_device, count * sizeof *predicted);
}

void hits_count(Tape *tape, const Dataset *set, BatchLoss *loss) {
    if (loss->counts_hits) return;
    if (!loss->hits) loss->hits = tape_memory(tape, hits_size(set) * sizeof *loss->hits);
    const Tensor *logits = loss->outputs;
    const int64_t *target = loss->target->data;
    const Kernels *kernels = device_kernels(tape->device);
    size_t n = logits->shape[0], classes = logits->shape[1], count;
    if (set->dense) {
        const int32_t *predicted = predict_on_device(tape, logits, &count);
        kernels->pixels->count_pixels(
            (PixelLabels){target, n, classes, logits->shape[2] * logits->shape[3]}, predicted,
            loss->hits);
    } else if (set->classes) {
        kernels->loss->count_correct((Labels){target, n, classes}, tensor_f32(logits), loss->hits);
    }
}

double hits_mean_iou(const double *confusion, size_t classes) {
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

double hits_perplexity(Score score) {
    return exp2(score.bits);
}

Score hits_score(const Dataset *set, const double *hits, double samples, double loss) {
    Score score = SCORE_NONE;
    size_t classes = set->classes;
    if (set->dense) {
        double correct = 0, pixels = 0;
        for (size_t k = 0; k < classes; k++) correct += hits[k * (classes + 1) + k];
        for (size_t i = 0; i < classes * (classes + 1); i++) pixels += hits[i];
        if (pixels > 0) score.accuracy = correct / pixels;
        score.mean_iou = hits_mean_iou(hits, classes);
    } else if (classes) {
        score.accuracy = hits[0] / (samples * (double)dataset_label_size(set));
    }
    if (set->tokens) score.bits = loss / log(2);
    return score;
}
