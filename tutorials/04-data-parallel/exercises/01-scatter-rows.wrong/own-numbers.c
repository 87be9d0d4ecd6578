/* device 1 should have rows 6 to 12 of the batch, not 0 to 6. */
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count) {
    for (int i = 0; i < part_count; i++) {
        Part *part = &parts[i];
        size_t b, e;
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &b, &e);
        part->begin = 0;
        part->end = e - b;
        part->rows = NULL;
        if (b == e) continue;
        size_t bytes = (e - b) * row_size * sizeof(float);
        part->rows = device_alloc(part->device, bytes);
        device_copy(part->device, part->rows, from, batch + b * row_size, bytes);
    }
}