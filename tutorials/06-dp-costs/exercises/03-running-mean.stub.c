/* Your part: which rows count, and how much. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    (void)momentum, (void)values, (void)rows, (void)devices;
    return running;
}
