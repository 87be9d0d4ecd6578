/* This is the longer of the two; without overlap they come one after the other. */
double same_batch_step_s(SameBatch job, int devices) {
    double reduce = 2 * (devices - 1) * (job.latency_s + job.bytes / devices / job.bytes_per_s);
    return job.compute_s / devices > reduce ? job.compute_s / devices : reduce;
}

int best_devices(SameBatch job, int most) {
    int best = 1;
    for (int devices = 2; devices <= most; devices++)
        if (same_batch_step_s(job, devices) < same_batch_step_s(job, best)) best = devices;
    return best;
}
