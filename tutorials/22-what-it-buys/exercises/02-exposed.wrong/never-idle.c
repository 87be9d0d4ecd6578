/* the link was idle in between. */
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s) {
    double end = 0;
    for (int b = 0; b < buckets; b++) {
        double begin = b == 0 ? ready_s[b] : end;
        end = begin + reduce_s[b];
    }
    return end > backward_s ? end - backward_s : 0;
}
