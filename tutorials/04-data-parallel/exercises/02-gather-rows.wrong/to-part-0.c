/* A copy went to another device than the outputs'. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = 0; i < part_count; i++) {
        const OutputPart *part = &parts[i];
        if (part->count == 0) continue;
        device_copy(parts[0].device, outputs + begin * row_size, part->device, part->rows,
                    part->count * row_size * sizeof(float));
        begin += part->count;
    }
    return begin;
}
