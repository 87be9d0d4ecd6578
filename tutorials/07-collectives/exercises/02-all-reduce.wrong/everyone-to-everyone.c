/* The sum is right, but its last bits are those of another order: rank 0, 1, 2. */
int all_reduce_by_hand(ProcessGroup *group, float *data, float *scratch, size_t count, Error *err) {
    float mine[4096];
    int world = pg_size(group), rank = pg_rank(group);
    memcpy(mine, data, count * sizeof *data);
    for (int step = 1; step < world; step++) {
        int to = (rank + step) % world, from = (rank + world - step) % world;
        if (pg_run(group, pg_send(mine, count, PG_F32, to), err) != 0) return -1;
        if (pg_run(group, pg_recv(scratch, count, PG_F32, from), err) != 0) return -1;
        for (size_t i = 0; i < count; i++) data[i] += scratch[i];
    }
    return 0;
}
