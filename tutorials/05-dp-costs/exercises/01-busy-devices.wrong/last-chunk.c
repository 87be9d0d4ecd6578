/* longest is the most rows that a device gets, and not the rows of the last one. */
Occupation occupation(size_t rows, size_t devices) {
    size_t length = (rows + devices - 1) / devices;
    size_t busy = rows == 0 ? 0 : (rows + length - 1) / length;
    return (Occupation){.busy = busy, .longest = rows == 0 ? 0 : rows - (busy - 1) * length};
}
