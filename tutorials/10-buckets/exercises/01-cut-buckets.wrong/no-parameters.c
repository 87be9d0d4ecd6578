/* Without parameters there is no bucket. */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    size_t bucket = 0, held = 0;
    for (size_t k = count; k-- > 0;) {
        bucket_of[k] = bucket;
        held += bytes[k];
        if (held >= cap && k > 0) {
            bucket++;
            held = 0;
        }
    }
    return bucket + 1;
}
