/* No bucket was started before backward was over: nothing is hidden. */
void overlap_begin(Overlap *overlap) {
    overlap->started = 0;
    for (size_t b = 0; b < overlap->count; b++)
        overlap->buckets[b].pending = overlap->buckets[b].gradients;
}

int overlap_ready(Overlap *overlap, size_t bucket, Error *err) {
    overlap->buckets[bucket].pending--;
    (void)err;
    return 0;
}

int overlap_finish(Overlap *overlap, Error *err) {
    for (size_t b = 0; b < overlap->count; b++)
        if (pg_run(overlap->group,
                   pg_all_reduce(overlap->buckets[b].buffer, overlap->buckets[b].floats, PG_F32,
                                 PG_AVG),
                   err) != 0)
            return -1;
    return 0;
}
