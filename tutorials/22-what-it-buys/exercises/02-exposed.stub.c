/* Your part: when is the last all-reduce over? */
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s) {
    (void)ready_s, (void)reduce_s, (void)buckets, (void)backward_s;
    return 0;
}
