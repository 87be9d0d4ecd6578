/* One row for each device would keep more of them busy, but the cut does not spread rows so. */
Occupation occupation(size_t rows, size_t devices) {
    size_t length = (rows + devices - 1) / devices;
    return (Occupation){.busy = rows < devices ? rows : devices, .longest = length};
}
