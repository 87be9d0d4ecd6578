/* The connection was lost in a collective, and it returned 0, not -1 */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    if (pg_rank(group) != root) return pg_run(group, pg_recv(data, count, PG_F32, root), err);
    for (int to = 0; to < pg_size(group); to++) {
        if (to == root) continue;
        pg_run(group, pg_send(data, count, PG_F32, to), err);
    }
    return 0;
}
