/* Your part: this stub makes one flat bucket. */
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    (void)bytes, (void)cap;
    for (size_t k = 0; k < count; k++) bucket_of[k] = 0;
    return 1;
}
