/* The mean of the rows is their sum divided by their number. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    size_t begin, end;
    chunk_bounds(rows, devices, 0, &begin, &end);
    double sum = 0;
    for (size_t row = begin; row < end; row++) sum += values[row];
    return (1 - momentum) * running + momentum * sum;
}
