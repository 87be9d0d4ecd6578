/* A rank spoke with one that is not its neighbour: there is no middle in a ring. */
int ring_reduce_scatter(ProcessGroup *group, float *data, float *scratch, size_t length,
                        Error *err) {
    const int rank = pg_rank(group), world = pg_size(group);
    for (int c = 0; c < world; c++) {
        const int owner = (c + world - 1) % world; // it gets this chunk from all others
        float *chunk = data + (size_t)c * length;
        if (rank != owner && pg_run(group, pg_send(chunk, length, PG_F32, owner), err) != 0)
            return -1;
        for (int from = 0; rank == owner && from < world; from++) {
            if (from == owner) continue;
            if (pg_run(group, pg_recv(scratch, length, PG_F32, from), err) != 0) return -1;
            for (size_t i = 0; i < length; i++) chunk[i] += scratch[i];
        }
    }
    return 0;
}
