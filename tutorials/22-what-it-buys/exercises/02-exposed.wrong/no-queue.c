/* A bucket waits for the one before it: the link carries one at a time. */
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s) {
    double end = 0;
    for (int b = 0; b < buckets; b++) {
        double begin = ready_s[b];
        end = begin + reduce_s[b];
    }
    return end > backward_s ? end - backward_s : 0;
}
