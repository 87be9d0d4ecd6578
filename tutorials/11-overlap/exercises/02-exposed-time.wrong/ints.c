/* Is a time kept in whole numbers? */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    int arrived = 0; // when the last bucket so far has
    for (size_t b = 0; b < count; b++)
        arrived = (int)((ready[b] > arrived ? ready[b] : arrived) + cost[b]);
    return arrived > backward ? arrived - backward : 0;
}
