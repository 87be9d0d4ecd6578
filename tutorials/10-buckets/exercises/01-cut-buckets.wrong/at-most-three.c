/* As many buckets are opened as it takes. */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    size_t b = 0, h = 0;
    for (size_t k = count; k-- > 0;) {
        if (b == 0 || (h >= cap && b < 3)) {
            b++;
            h = 0;
        }
        bucket_of[k] = b - 1;
        h += bytes[k];
    }
    return b;
}