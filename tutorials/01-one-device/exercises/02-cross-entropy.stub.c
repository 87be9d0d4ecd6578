/* Your part: the rows' losses, added up and divided. */
double cross_entropy(const float *logits, const int64_t *labels, size_t rows, size_t classes,
                     double divisor) {
    (void)logits, (void)labels, (void)rows, (void)classes, (void)divisor;
    return 0.0;
}
