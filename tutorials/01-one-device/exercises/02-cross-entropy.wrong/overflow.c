/* exp overflowed, or was 0 for a whole row */
double cross_entropy(const float *logits, const int64_t *labels, size_t rows, size_t classes,
                     double divisor) {
    double total = 0;
    for (size_t row = 0; row < rows; row++) {
        const float *logit = logits + row * classes;
        double sum = 0;
        for (size_t c = 0; c < classes; c++) sum += exp((double)logit[c]);
        total += log(sum) - (double)logit[labels[row]];
    }
    return rows == 0 ? 0.0 : total / divisor;
}
