/* A row has row_size floats */
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count) {
    (void)row_size;
    for (int i = 0; i < part_count; i++) {
        Part *part = &parts[i];
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &part->begin, &part->end);
        part->rows = NULL;
        if (part->begin == part->end) continue;
        size_t bytes = (part->end - part->begin) * 3 * sizeof(float);
        part->rows = device_alloc(part->device, bytes);
        device_copy(part->device, part->rows, from, batch + part->begin * 3, bytes);
    }
}