/* A rank spoke with one that is not its neighbour: there is no middle in a ring. */
int ring_all_gather(ProcessGroup *group, float *data, size_t length, Error *err) {
    const int rank = pg_rank(group), world = pg_size(group);
    for (int owner = 0; owner < world; owner++) {
        float *chunk = data + (size_t)((owner + 1) % world) * length;
        for (int to = 0; rank == owner && to < world; to++)
            if (to != owner && pg_run(group, pg_send(chunk, length, PG_F32, to), err) != 0)
                return -1;
        if (rank != owner && pg_run(group, pg_recv(chunk, length, PG_F32, owner), err) != 0)
            return -1;
    }
    return 0;
}
