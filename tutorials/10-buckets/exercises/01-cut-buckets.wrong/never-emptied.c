/* A new bucket holds nothing: what the one before it held was counted again. */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    size_t buckets = 0, held = 0;
    for (size_t k = count; k-- > 0;) {
        if (buckets == 0 || held >= cap) buckets++;
        bucket_of[k] = buckets - 1;
        held += bytes[k];
    }
    return buckets;
}
