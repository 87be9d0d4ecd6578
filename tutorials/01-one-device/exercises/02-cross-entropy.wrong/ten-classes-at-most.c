/* It crashed (SIGSEGV): it read or wrote memory that is not its own. */
double cross_entropy(const float *logits, const int64_t *labels, size_t rows, size_t classes,
                     double divisor) {
    double total = 0, powers[10];
    for (size_t row = 0; row < rows; row++) {
        const float *logit = logits + row * classes;
        float largest = logit[0];
        for (size_t c = 1; c < classes; c++) largest = fmaxf(largest, logit[c]);
        double sum = 0;
        for (size_t c = 0; c < classes; c++) powers[c] = exp((double)(logit[c] - largest));
        for (size_t c = 0; c < classes; c++) sum += powers[c];
        total += log(sum) - (double)(logit[labels[row]] - largest);
    }
    return rows == 0 ? 0.0 : total / divisor;
}
