/* A whole number was divided by 0 */
Occupation occupation(size_t rows, size_t devices) {
    size_t length = (rows + devices - 1) / devices;
    return (Occupation){.busy = (rows + length - 1) / length, .longest = length};
}
