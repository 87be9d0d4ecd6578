/* A bucket was started before one that stands in front of it: other ranks have another order. */
void overlap_begin(Overlap *overlap) {
    overlap->started = 0;
    for (size_t b = 0; b < overlap->count; b++)
        overlap->buckets[b].pending = overlap->buckets[b].gradients;
}

int overlap_ready(Overlap *overlap, size_t bucket, Error *err) {
    overlap->buckets[bucket].pending--;
    OverlapBucket *full = &overlap->buckets[bucket];
    if (full->pending > 0) return 0;
    Collective mean = pg_all_reduce(full->buffer, full->floats, PG_F32, PG_AVG);
    full->work = pg_start(overlap->group, mean, err);
    return full->work ? 0 : -1;
}

int overlap_finish(Overlap *overlap, Error *err) {
    for (size_t b = 0; b < overlap->count; b++)
        if (pg_work_wait(overlap->buckets[b].work, NULL, NULL, err) != 0) return -1;
    return 0;
}
