/* Rank 0 sent, and is not the root: the root itself sends to every other rank. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    const int rank = pg_rank(group), world = pg_size(group);
    const int before = (rank + world - 1) % world, next = (rank + 1) % world;
    if (rank != root && pg_run(group, pg_recv(data, count, PG_F32, before), err) != 0) return -1;
    if (next != root && pg_run(group, pg_send(data, count, PG_F32, next), err) != 0) return -1;
    return 0;
}
