/* This is a collective of the library; the exercise is to make one of sends and receives. */
int ring_reduce_scatter(ProcessGroup *group, float *data, float *scratch, size_t length,
                        Error *err) {
    const size_t count = (size_t)pg_size(group) * length;
    (void)scratch;
    return pg_run(group, pg_all_reduce(data, count, PG_F32, PG_SUM), err);
}
