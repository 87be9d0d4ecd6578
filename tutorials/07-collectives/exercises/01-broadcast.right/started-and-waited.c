/* A message that is started and waited for is one message. */
static int send_or_receive(ProcessGroup *group, Collective message, Error *err) {
    PgWork *work = pg_start(group, message, err);
    return work ? pg_work_wait(work, NULL, NULL, err) : -1;
}

int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    int status = 0;
    if (pg_rank(group) != root)
        return send_or_receive(group, pg_recv(data, count, PG_F32, root), err);
    for (int to = pg_size(group) - 1; to >= 0 && status == 0; to--)
        if (to != root) status = send_or_receive(group, pg_send(data, count, PG_F32, to), err);
    return status;
}
