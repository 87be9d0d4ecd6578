/* A step of 5 devices takes 44.8 s, not 44. */
double same_batch_step_s(SameBatch job, int devices) {
    double round = job.latency_s + (int)job.bytes / devices / job.bytes_per_s;
    return job.compute_s / devices + 2 * (devices - 1) * round;
}

int best_devices(SameBatch job, int most) {
    int best = 1;
    for (int devices = 2; devices <= most; devices++)
        if (same_batch_step_s(job, devices) < same_batch_step_s(job, best)) best = devices;
    return best;
}
