/* Your part: many programs print the mean of rank 0's own rows, as this stub does. */
int mean_loss(ProcessGroup *group, double sum, size_t rows, double *mean, Error *err) {
    (void)group, (void)err;
    *mean = sum / (double)rows;
    return 0;
}
