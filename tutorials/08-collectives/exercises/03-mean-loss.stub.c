/* Your part: what many programs print is the mean of their own rows, as here. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    (void)group, (void)err;
    *mean = sum / (double)rows;
    return 0;
}
