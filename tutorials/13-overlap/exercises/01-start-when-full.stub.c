/* Your part: this stub reduces after backward, so nothing overlaps. */
void overlap_begin(Overlap *overlap) {
    (void)overlap;
}

int overlap_ready(Overlap *overlap, size_t bucket, Error *err) {
    (void)overlap, (void)bucket, (void)err;
    return 0;
}

int overlap_finish(Overlap *overlap, Error *err) {
    for (size_t b = 0; b < overlap->count; b++) {
        OverlapBucket *bucket = &overlap->buckets[b];
        Collective mean = pg_all_reduce(bucket->buffer, bucket->floats, PG_F32, PG_AVG);
        if (pg_run(overlap->group, mean, err) != 0) return -1;
    }
    return 0;
}
