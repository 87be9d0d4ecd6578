/* It returned while its own collectives were still running */
int ring_reduce_scatter(ProcessGroup *group, float *data, float *scratch, size_t length,
                        Error *err) {
    const int rank = pg_rank(group), world = pg_size(group);
    for (int k = 0; k < world - 1; k++) {
        float *out = data + (size_t)((rank - k + world) % world) * length,
              *mine = data + (size_t)((rank - k - 1 + world) % world) * length;
        if (!pg_start(group, pg_send(out, length, PG_F32, (rank + 1) % world), err)) return -1;
        PgWork *w =
            pg_start(group, pg_recv(scratch, length, PG_F32, (rank + world - 1) % world), err);
        if (!w) return -1;
        (void)w;
        for (size_t i = 0; i < length; i++) mine[i] += scratch[i];
    }
    return 0;
}