/* rank_helpers.c: see rank_helpers.h. Made of collectives only; nothing here knows a backend. */
#include "ddp/group/rank_helpers.h"

#include <string.h>
#include <sys/random.h>

#include "common/base/hash.h"
#include "common/base/memory.h"
#include "common/base/rng.h"

int rank_get(const ProcessGroup *group) {
    return group ? pg_rank(group) : 0;
}

int rank_world_size(const ProcessGroup *group) {
    return group ? pg_size(group) : 1;
}

bool rank_is_main(const ProcessGroup *group) {
    return rank_get(group) == 0;
}

int rank_synchronize(ProcessGroup *group, Error *err) {
    return rank_world_size(group) == 1 ? 0 : pg_run(group, pg_barrier(), err);
}

// ---- blobs ----------------------------------------------------------------------------------

// Tells everybody the sizes: offset[r + 1] - offset[r] is rank r's.
static int gather_sizes(ProcessGroup *group, size_t bytes, size_t *offset, Error *err) {
    int world = rank_world_size(group);
    int64_t mine = (int64_t)bytes, *sizes = memory_zalloc((size_t)world * sizeof *sizes);
    sizes[0] = mine;
    int status = group ? pg_run(group, pg_all_gather(&mine, sizes, 1, PG_I64), err) : 0;
    offset[0] = 0;
    for (int r = 0; r < world; r++) offset[r + 1] = offset[r] + (size_t)sizes[r];
    free(sizes);
    return status;
}

static size_t blob_bytes(const RankBlobs *blobs, int rank) {
    return blobs->offset[rank + 1] - blobs->offset[rank];
}

void rank_blobs_free(RankBlobs *blobs) {
    free(blobs->offset);
    free(blobs->data);
    *blobs = (RankBlobs){0};
}

// Moves rank's bytes from its own `data` to its place on all ranks.
static int share_blob(ProcessGroup *group, RankBlobs *all, int rank, const void *data, Error *err) {
    size_t bytes = blob_bytes(all, rank);
    unsigned char *place = all->data + all->offset[rank];
    if (rank == rank_get(group) && bytes > 0) memcpy(place, data, bytes);
    if (!group || bytes == 0) return 0; // all ranks know the size
    return pg_run(group, pg_broadcast(place, bytes, PG_U8, rank), err);
}

int rank_all_gather_blobs(ProcessGroup *group, const void *data, size_t bytes, RankBlobs *all,
                          Error *err) {
    int world = rank_world_size(group), status;
    *all = (RankBlobs){.count = world,
                       .offset = memory_zalloc(((size_t)world + 1) * sizeof *all->offset)};
    status = gather_sizes(group, bytes, all->offset, err);
    if (status == 0) all->data = memory_zalloc(all->offset[world]);
    for (int r = 0; r < world && status == 0; r++) status = share_blob(group, all, r, data, err);
    if (status != 0) rank_blobs_free(all);
    return status;
}

// The root's part is to receive the blobs; deliver, below, is the part of the others.
static int collect(ProcessGroup *group, RankBlobs *all, const void *data, Error *err) {
    all->data = memory_zalloc(all->offset[all->count]);
    for (int r = 0; r < all->count; r++) {
        size_t bytes = blob_bytes(all, r);
        unsigned char *place = all->data + all->offset[r];
        if (bytes == 0) continue;
        if (r == rank_get(group))
            memcpy(place, data, bytes);
        else if (pg_run(group, pg_recv(place, bytes, PG_U8, r), err) != 0)
            return -1;
    }
    return 0;
}

static int deliver(ProcessGroup *group, const void *data, size_t bytes, int root, Error *err) {
    return bytes == 0 ? 0 : pg_run(group, pg_send(data, bytes, PG_U8, root), err);
}

int rank_gather_blobs(ProcessGroup *group, const void *data, size_t bytes, int root, RankBlobs *all,
                      Error *err) {
    int world = rank_world_size(group);
    *all = (RankBlobs){0};
    if (root < 0 || root >= world)
        return error_set(err, STATUS_FAILED, "gather: there is no rank %d in a group of %d", root,
                         world);
    RankBlobs mine = {.count = world,
                      .offset = memory_zalloc(((size_t)world + 1) * sizeof *mine.offset)};
    int status = gather_sizes(group, bytes, mine.offset, err);
    bool is_root = rank_get(group) == root;
    if (status == 0)
        status =
            is_root ? collect(group, &mine, data, err) : deliver(group, data, bytes, root, err);
    if (status == 0 && is_root)
        *all = mine;
    else
        rank_blobs_free(&mine);
    return status;
}

// ---- named numbers --------------------------------------------------------------------------

static int compare_names(const void *a, const void *b) {
    const NamedValue *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

// The names, each with its NUL, one after the other. free() it.
static char *join_names(NamedValue *const *sorted, size_t count, size_t *bytes) {
    *bytes = 0;
    for (size_t i = 0; i < count; i++) *bytes += strlen(sorted[i]->name) + 1;
    char *names = memory_zalloc(*bytes), *at = names;
    for (size_t i = 0; i < count; i++) at = stpcpy(at, sorted[i]->name) + 1;
    return names;
}

static bool has_name(const RankBlobs *all, int rank, const char *name) {
    const char *at = (const char *)all->data + all->offset[rank];
    const char *end = (const char *)all->data + all->offset[rank + 1];
    for (; at < end; at += strlen(at) + 1)
        if (strcmp(at, name) == 0) return true;
    return false;
}

// The first name of `rank` that `other` lacks; NULL if it has all.
static const char *find_lacking(const RankBlobs *all, int rank, int other) {
    const char *at = (const char *)all->data + all->offset[rank];
    const char *end = (const char *)all->data + all->offset[rank + 1];
    for (; at < end; at += strlen(at) + 1)
        if (!has_name(all, other, at)) return at;
    return NULL;
}

// Every rank compares all with rank 0's, so every rank comes to the same message.
static int compare_all_names(const RankBlobs *all, Error *err) {
    for (int r = 1; r < all->count; r++) {
        const char *here = find_lacking(all, 0, r), *there = find_lacking(all, r, 0);
        if (here || there)
            return error_set(err, STATUS_FAILED,
                             "reduce_dict: rank %d has a value '%.200s', rank %d has none",
                             here ? 0 : r, here ? here : there, here ? r : 0);
        if (blob_bytes(all, r) != blob_bytes(all, 0))
            return error_set(err, STATUS_FAILED, "reduce_dict: rank 0 or rank %d has a name twice",
                             r);
    }
    return 0;
}

// Usually one small collective tells that all ranks have the same names; only if they have not are
// the names themselves gathered.
static int check_names(ProcessGroup *group, const char *names, size_t bytes, Error *err) {
    int world = pg_size(group);
    uint64_t mine[2] = {hash_bytes(HASH_START, names, bytes), bytes};
    uint64_t *theirs = memory_zalloc((size_t)world * sizeof mine);
    int status = pg_run(group, pg_all_gather(mine, theirs, 2, PG_I64), err);
    bool same = true;
    for (int r = 1; r < world; r++)
        same = same && memcmp(theirs, theirs + (size_t)(2 * r), sizeof mine) == 0;
    free(theirs);
    if (status != 0 || same) return status;
    RankBlobs all;
    if (rank_all_gather_blobs(group, names, bytes, &all, err) != 0) return -1;
    status = compare_all_names(&all, err);
    rank_blobs_free(&all);
    return status;
}

static int reduce_sorted(ProcessGroup *group, NamedValue *const *sorted, size_t count, bool average,
                         Error *err) {
    size_t bytes;
    char *names = join_names(sorted, count, &bytes);
    int status = check_names(group, names, bytes, err);
    free(names);
    if (status != 0) return -1;
    double *sums = memory_zalloc(count * sizeof *sums);
    for (size_t i = 0; i < count; i++) sums[i] = sorted[i]->value;
    status = pg_run(group, pg_all_reduce(sums, count, PG_F64, average ? PG_AVG : PG_SUM), err);
    for (size_t i = 0; i < count && status == 0; i++) sorted[i]->value = sums[i];
    free(sums);
    return status;
}

int rank_reduce_dict(ProcessGroup *group, NamedValue *values, size_t count, bool average,
                     Error *err) {
    if (rank_world_size(group) == 1) return 0;
    NamedValue **sorted = memory_zalloc(count * sizeof *sorted);
    for (size_t i = 0; i < count; i++) sorted[i] = &values[i];
    qsort(sorted, count, sizeof *sorted, compare_names);
    int status = reduce_sorted(group, sorted, count, average, err);
    free(sorted);
    return status;
}

// ---- seeds ----------------------------------------------------------------------------------

int rank_shared_seed(ProcessGroup *group, uint64_t *seed, Error *err) {
    CHECK(getrandom(seed, sizeof *seed, 0) == (ssize_t)sizeof *seed, "no random bytes");
    return group ? pg_run(group, pg_broadcast(seed, sizeof *seed, PG_U8, 0), err) : 0;
}

uint64_t rank_own_seed(uint64_t seed, int rank) {
    return rng_u64(seed, RNG_STREAM_RANK, (uint64_t)rank);
}
