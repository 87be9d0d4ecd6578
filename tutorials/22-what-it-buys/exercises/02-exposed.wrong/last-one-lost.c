/* One bucket that is ready at the end of backward sticks out whole. */
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s) {
    double end = 0;
    for (int b = 0; b < buckets - 1; b++) {
        double begin = ready_s[b] > end ? ready_s[b] : end;
        end = begin + reduce_s[b];
    }
    return end > backward_s ? end - backward_s : 0;
}
