/* Two buckets travelled at once: each begins when the one before it has arrived. */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double arrived = 0;
    for (size_t b = 0; b < count; b++)
        if (ready[b] + cost[b] > arrived) arrived = ready[b] + cost[b];
    return arrived > backward ? arrived - backward : 0;
}
