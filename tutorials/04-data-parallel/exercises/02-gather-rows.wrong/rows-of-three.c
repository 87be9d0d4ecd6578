/* A row has row_size floats: yours were right while that was 3, and are not with another length. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = 0; i < part_count; i++) {
        const OutputPart *part = &parts[i];
        if (part->count == 0) continue;
        device_copy(to, outputs + begin * 3, part->device, part->rows,
                    part->count * 3 * sizeof(float));
        begin += part->count;
    }
    return begin;
}
