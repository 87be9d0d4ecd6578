/* Bytes were counted in a type that 3000 million do not fit into. */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    size_t buckets = 0;
    unsigned held = 0; // in the bucket that is open, the last one
    for (size_t k = count; k-- > 0;) {
        if (buckets == 0 || held >= cap) {
            buckets++;
            held = 0;
        }
        bucket_of[k] = buckets - 1;
        held += (unsigned)bytes[k];
    }
    return buckets;
}
