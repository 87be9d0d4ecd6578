/* sum_halving.c: recursive halving, then doubling. If the number of ranks is not a power of two,
 * the ranks beyond the largest one send their values to a partner first and receive the sum at the
 * end.
 */
#include <stdlib.h>

#include "ddp/own/own_all_reduce.h"

// The lower of two partners sends first.
static int swap(ProcessGroup *group, int with, const float *out, size_t out_count, float *in,
                size_t in_count, Error *err) {
    Collective send = pg_send(out, out_count, PG_F32, with),
               recv = pg_recv(in, in_count, PG_F32, with);
    const bool first = pg_rank(group) < with;
    if (pg_run(group, first ? send : recv, err) != 0) return -1;
    return pg_run(group, first ? recv : send, err);
}

static int halve_and_double(ProcessGroup *group, int ranks, float *values, size_t count,
                            float *room, Error *err) {
    const int rank = pg_rank(group);
    size_t begin[32], end[32]; // the range that this rank sums after each halving
    int depth = 0;
    begin[0] = 0, end[0] = count;
    for (int far = ranks / 2; far > 0; far /= 2, depth++) {
        const int with = rank ^ far;
        const size_t middle = (begin[depth] + end[depth]) / 2;
        const bool keeps_low = rank < with;
        const size_t mine = keeps_low ? begin[depth] : middle,
                     mine_end = keeps_low ? middle : end[depth];
        const size_t other = keeps_low ? middle : begin[depth],
                     other_end = keeps_low ? end[depth] : middle;
        if (swap(group, with, values + other, other_end - other, room, mine_end - mine, err) != 0)
            return -1;
        for (size_t i = mine; i < mine_end; i++) values[i] += room[i - mine];
        begin[depth + 1] = mine, end[depth + 1] = mine_end;
    }
    for (int far = 1; far < ranks; far *= 2) {
        const int with = rank ^ far;
        depth--;
        const bool kept_low = begin[depth + 1] == begin[depth] && rank < with;
        const size_t mine = begin[depth + 1], mine_end = end[depth + 1];
        const size_t other = kept_low ? mine_end : begin[depth],
                     other_end = kept_low ? end[depth] : mine;
        if (swap(group, with, values + mine, mine_end - mine, values + other, other_end - other,
                 err) != 0)
            return -1;
    }
    return 0;
}

static int sum(ProcessGroup *group, float *values, size_t count, Error *err) {
    const int rank = pg_rank(group), size = pg_size(group);
    int power = 1, failed = 0;
    while (power * 2 <= size) power *= 2;
    if (rank >= power) {
        if (pg_run(group, pg_send(values, count, PG_F32, rank - power), err) != 0) return -1;
        return pg_run(group, pg_recv(values, count, PG_F32, rank - power), err);
    }
    float *room = malloc(count * sizeof *room + 1);
    if (!room) return error_set(err, STATUS_FAILED, "out of memory");
    const bool has_partner = rank + power < size;
    if (has_partner) {
        failed = pg_run(group, pg_recv(room, count, PG_F32, rank + power), err);
        for (size_t i = 0; i < count && !failed; i++) values[i] += room[i];
    }
    if (!failed) failed = halve_and_double(group, power, values, count, room, err);
    if (!failed && has_partner)
        failed = pg_run(group, pg_send(values, count, PG_F32, rank + power), err);
    free(room);
    return failed;
}

const OwnAllReduce own_all_reduce = {OWN_ALL_REDUCE_VERSION, sum};
