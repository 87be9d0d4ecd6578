/* Your part: two sums, one all-reduce, and a gradient for each row. */
int norm_gradient(ProcessGroup *group, const NormRows *rows, NormGradients *to, Error *err) {
    (void)group, (void)err;
    for (size_t i = 0; i < rows->count; i++) to->dx[i] = 0;
    to->dweight = to->dbias = 0;
    return 0;
}
