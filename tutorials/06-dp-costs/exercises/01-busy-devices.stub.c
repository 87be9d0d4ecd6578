/* Your part: both numbers, from the rule for the cut. */
Occupation occupation(size_t rows, size_t devices) {
    (void)rows;
    return (Occupation){.busy = devices, .longest = 0};
}
