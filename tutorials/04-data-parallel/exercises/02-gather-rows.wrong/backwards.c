/* The outputs are in the order of the devices from the last to the first. */
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = part_count - 1; i >= 0; i--) {
        const OutputPart *part = &parts[i];
        if (part->count == 0) continue;
        device_copy(to, outputs + begin * row_size, part->device, part->rows,
                    part->count * row_size * sizeof(float));
        begin += part->count;
    }
    return begin;
}
