/* Your part: the first device's rows, and the weight of their mean. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    (void)momentum, (void)values, (void)rows, (void)devices;
    return running;
}
