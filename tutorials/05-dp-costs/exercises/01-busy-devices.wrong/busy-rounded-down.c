/* A device with a short chunk is busy, too: the number of chunks must be rounded up. */
Occupation occupation(size_t rows, size_t devices) {
    size_t length = (rows + devices - 1) / devices;
    return (Occupation){.busy = rows == 0 ? 0 : rows / length, .longest = length};
}
