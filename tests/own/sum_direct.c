/* sum_direct.c: each rank sums one chunk, which all other ranks send to it, and sends the sum back
 * to them. All ranks go through the pairs in the same order, so no two ranks wait for each other.
 */
#include <stdlib.h>

#include "ddp/own/own_all_reduce.h"

typedef struct Chunk {
    float *values;
    size_t count;
} Chunk;

static Chunk chunk_of(float *values, size_t count, int rank, int size) {
    size_t begin = count * (size_t)rank / (size_t)size;
    return (Chunk){values + begin, count * (size_t)(rank + 1) / (size_t)size - begin};
}

// The lower rank of a pair sends first.
static int exchange(ProcessGroup *group, int other, Chunk out, Chunk in, Error *err) {
    Collective send = pg_send(out.values, out.count, PG_F32, other);
    Collective receive = pg_recv(in.values, in.count, PG_F32, other);
    const bool first = pg_rank(group) < other;
    if (pg_run(group, first ? send : receive, err) != 0) return -1;
    return pg_run(group, first ? receive : send, err);
}

static int sum(ProcessGroup *group, float *values, size_t count, Error *err) {
    const int rank = pg_rank(group), size = pg_size(group);
    const Chunk mine = chunk_of(values, count, rank, size);
    float *all = malloc(((size_t)size * mine.count + 1) * sizeof *all);
    int status = 0;
    for (int i = 0; i < size && status == 0; i++)
        for (int j = i + 1; j < size && status == 0; j++) {
            int other = i == rank ? j : j == rank ? i : -1;
            Chunk theirs = {all + (size_t)(other < 0 ? 0 : other) * mine.count, mine.count};
            if (other >= 0)
                status = exchange(group, other, chunk_of(values, count, other, size), theirs, err);
        }
    for (size_t k = 0; k < mine.count && status == 0; k++) {
        float total = 0;
        for (int r = 0; r < size; r++)
            total += r == rank ? mine.values[k] : all[(size_t)r * mine.count + k];
        mine.values[k] = total;
    }
    free(all);
    for (int i = 0; i < size && status == 0; i++)
        for (int j = i + 1; j < size && status == 0; j++) {
            int other = i == rank ? j : j == rank ? i : -1;
            if (other >= 0)
                status = exchange(group, other, mine, chunk_of(values, count, other, size), err);
        }
    return status;
}

const OwnAllReduce own_all_reduce = {OWN_ALL_REDUCE_VERSION, sum};
