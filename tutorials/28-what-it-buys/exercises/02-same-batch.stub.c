/* Your part: the time of a step, and the number of devices that makes it shortest. */
double same_batch_step_s(SameBatch job, int devices) {
    (void)job, (void)devices;
    return 0;
}

int best_devices(SameBatch job, int most) {
    (void)job, (void)most;
    return 0;
}
