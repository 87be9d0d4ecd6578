/* The rows came by another way than device_copy: between two GPUs there is no memcpy. */
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count) {
    for (int i = 0; i < part_count; i++) {
        Part *part = &parts[i];
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &part->begin, &part->end);
        part->rows = NULL;
        (void)from;
        if (part->begin == part->end) continue;
        size_t bytes = (part->end - part->begin) * row_size * sizeof(float);
        part->rows = device_alloc(part->device, bytes);
        memcpy(part->rows, batch + part->begin * row_size, bytes);
    }
}
