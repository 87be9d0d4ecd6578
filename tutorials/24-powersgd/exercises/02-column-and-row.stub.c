/* Your part: the column, the row, the product. */
int send_as_product(ProcessGroup *group, float *g, size_t n, size_t m, float *column, float *row,
                    Error *err) {
    (void)group, (void)g, (void)n, (void)m, (void)column, (void)row, (void)err;
    return 0;
}
