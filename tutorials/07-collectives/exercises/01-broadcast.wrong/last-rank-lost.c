/* Not all ranks took part in the same collectives, so the others waited in vain. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    if (pg_rank(group) != root) return pg_run(group, pg_recv(data, count, PG_F32, root), err);
    for (int to = 0; to + 1 < pg_size(group); to++) {
        if (to == root) continue;
        if (pg_run(group, pg_send(data, count, PG_F32, to), err) != 0) return -1;
    }
    return 0;
}
