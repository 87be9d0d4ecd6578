/* The second call gave another answer than the first */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    static size_t buckets = 0, held = 0;
    for (size_t k = count; k-- > 0;) {
        if (buckets == 0 || held >= cap) {
            buckets++;
            held = 0;
        }
        bucket_of[k] = buckets - 1;
        held += bytes[k];
    }
    return buckets;
}