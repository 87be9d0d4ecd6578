/* device_copy was told another device than the one whose memory it reads. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = 0; i < part_count; i++) {
        const OutputPart *part = &parts[i];
        if (part->count == 0) continue;
        device_copy(to, outputs + begin * row_size, to, part->rows,
                    part->count * row_size * sizeof(float));
        begin += part->count;
    }
    return begin;
}
