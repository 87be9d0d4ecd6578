/* The latency is paid in every round, and here it is paid once. */
double same_batch_step_s(SameBatch job, int devices) {
    double bytes_s = job.bytes / devices / job.bytes_per_s;
    return job.compute_s / devices +
           (devices > 1 ? job.latency_s + 2 * (devices - 1) * bytes_s : 0);
}

int best_devices(SameBatch job, int most) {
    int best = 1;
    for (int devices = 2; devices <= most; devices++)
        if (same_batch_step_s(job, devices) < same_batch_step_s(job, best)) best = devices;
    return best;
}
