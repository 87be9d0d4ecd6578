/* Each rank has the mean of its own rows: nothing was exchanged. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    (void)group, (void)err;
    *mean = rows > 0 ? sum / (double)rows : 0.0;
    return 0;
}
