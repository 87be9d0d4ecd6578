/* It began 2 s after the beginning of backward, and needs 16. */
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s) {
    double end = 0;
    for (int b = 0; b < buckets; b++) {
        double begin = b == 0 ? backward_s : end;
        end = begin + reduce_s[b];
    }
    return end > backward_s ? end - backward_s : 0;
}
