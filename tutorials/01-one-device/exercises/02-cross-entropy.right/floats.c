/* In floats all the way; the row's largest logit is added again behind the logarithm. */
double cross_entropy(const float *logits, const int64_t *labels, size_t rows, size_t classes,
                     double divisor) {
    float total = 0;
    for (size_t row = 0; row < rows; row++, logits += classes) {
        float largest = -INFINITY, sum = 0;
        for (size_t c = 0; c < classes; c++) largest = fmaxf(largest, logits[c]);
        for (size_t c = 0; c < classes; c++) sum += expf(logits[c] - largest);
        total += largest + logf(sum) - logits[labels[row]];
    }
    return rows == 0 ? 0.0 : (double)total / divisor;
}
