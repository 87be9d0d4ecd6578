/* The first parameter is in bucket 0; backward has the last one first. */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    size_t buckets = 0, held = 0;
    for (size_t k = 0; k < count; k++) {
        if (buckets == 0 || held >= cap) {
            buckets++;
            held = 0;
        }
        bucket_of[k] = buckets - 1;
        held += bytes[k];
    }
    return buckets;
}
