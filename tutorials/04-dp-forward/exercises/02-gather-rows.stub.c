/* Your part: one copy for each part that has rows. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    (void)to, (void)outputs, (void)row_size, (void)parts, (void)part_count;
    return 0;
}
