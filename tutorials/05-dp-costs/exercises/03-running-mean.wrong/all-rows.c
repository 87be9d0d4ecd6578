/* All rows were counted, but those of the other devices are lost. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    size_t begin, end;
    chunk_bounds(rows, devices, 0, &begin, &end);
    double sum = 0;
    for (size_t row = 0; row < rows; row++) sum += values[row];
    return (1 - momentum) * running + momentum * sum / (double)(end - begin > 0 ? rows : 1);
}
