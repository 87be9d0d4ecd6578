/* the rows of the outputs' own device need one, too. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = 0; i < part_count; i++) {
        const OutputPart *part = &parts[i];
        if (part->count == 0) continue;
        const size_t bytes = part->count * row_size * sizeof(float);
        if (part->device == to)
            memcpy(outputs + begin * row_size, part->rows, bytes);
        else
            device_copy(to, outputs + begin * row_size, part->device, part->rows, bytes);
        begin += part->count;
    }
    return begin;
}
