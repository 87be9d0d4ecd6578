/* The longest chunk has ceil(rows / devices) rows: the division must round up. */
Occupation occupation(size_t rows, size_t devices) {
    size_t length = rows / devices;
    size_t busy = length == 0 ? rows : (rows + length - 1) / length;
    return (Occupation){.busy = busy, .longest = length};
}
