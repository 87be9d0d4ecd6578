/* rounding does not say it. */
double same_batch_step_s(SameBatch job, int devices) {
    double round = job.latency_s + job.bytes / devices / job.bytes_per_s;
    return job.compute_s / devices + 2 * (devices - 1) * round;
}
int best_devices(SameBatch job, int most) {
    double gain = job.compute_s - 2 * job.bytes / job.bytes_per_s;
    if (gain <= 0) return 1;
    if (job.latency_s == 0) return most;
    double best = __builtin_sqrt(gain / (2 * job.latency_s));
    if (best < 1) return 1;
    return best > most ? most : (int)(best + 0.5);
}
