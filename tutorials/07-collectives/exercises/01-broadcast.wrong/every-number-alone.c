/* There are more messages than needed: one for each other rank, with all numbers in it. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    for (size_t i = 0; i < count; i++) {
        if (pg_rank(group) != root) {
            if (pg_run(group, pg_recv(data + i, 1, PG_F32, root), err) != 0) return -1;
            continue;
        }
        for (int to = 0; to < pg_size(group); to++)
            if (to != root && pg_run(group, pg_send(data + i, 1, PG_F32, to), err) != 0) return -1;
    }
    return 0;
}
