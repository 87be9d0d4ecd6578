/* These are the rows of the last device; the model is on the first. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    size_t begin, end;
    chunk_bounds(rows, devices, devices - 1, &begin, &end);
    double sum = 0;
    for (size_t row = begin; row < end; row++) sum += values[row];
    return (1 - momentum) * running + momentum * sum / (double)(end - begin);
}
