/* Your part: this stub returns the time without any overlap. */
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double sum = 0;
    (void)ready, (void)backward;
    for (size_t b = 0; b < count; b++) sum += cost[b];
    return sum;
}
