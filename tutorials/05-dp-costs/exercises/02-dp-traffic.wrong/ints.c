/* A small model is right, and one of 1500 million weights is not: an int ends at 2^31. */
DpTraffic dp_traffic(const DpJob *job) {
    struct {
        int to_others, to_first;
    } numbers = {0};
    for (size_t i = 1; i < job->devices; i++) {
        size_t begin, end;
        chunk_bounds(job->rows, job->devices, i, &begin, &end);
        size_t rows = end - begin;
        if (rows == 0) break;
        numbers.to_others += (int)(job->weights + rows * job->input_row + rows * job->output_row);
        numbers.to_first += (int)(job->weights + rows * job->output_row);
    }
    return (DpTraffic){.to_first = (size_t)(4 * numbers.to_first),
                       .to_others = (size_t)(4 * numbers.to_others)};
}
