/* A bucket travelled before it was full. */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double sum = 0;
    (void)ready;
    for (size_t b = 0; b < count; b++) sum += cost[b];
    return sum > backward ? sum - backward : 0;
}
