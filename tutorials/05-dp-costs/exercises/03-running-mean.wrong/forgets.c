/* The old running mean was forgotten: it keeps 1 - momentum of its value. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    size_t begin, end;
    chunk_bounds(rows, devices, 0, &begin, &end);
    double sum = 0;
    for (size_t row = begin; row < end; row++) sum += values[row];
    return momentum * sum / (double)(end - begin) + 0 * running;
}
