/* one device alone is best, and not 2. */
double same_batch_step_s(SameBatch job, int devices) {
    double round = job.latency_s + job.bytes / devices / job.bytes_per_s;
    return job.compute_s / devices + 2 * (devices - 1) * round;
}

int best_devices(SameBatch job, int most) {
    int best = 2;
    for (int devices = 3; devices <= most; devices++)
        if (same_batch_step_s(job, devices) < same_batch_step_s(job, best)) best = devices;
    return best;
}
