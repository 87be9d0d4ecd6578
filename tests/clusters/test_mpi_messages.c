/* test_mpi_messages.c: the messages that the mpi backend passes to MPI, and their order, which
 * keeps both directions of a slow link busy at the same time. Neither the sums (test_process_group)
 * nor times that a test could rely on show that.
 *
 * tests/clusters/mpi_messages.sh starts the ranks: two, each on its own host; four, two on each
 * host; or six on three hosts, whose middle host forwards sums in both directions. All run on one
 * machine, which fake_hosts.c hides from them. This file intercepts the backend's calls of MPI
 * (MPI's profiling interface).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <mpi.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "ddp/group/backends.h"
#include "ddp/rendezvous/init.h"

enum {
    RANKS_MAX = 6,
    COUNT = 6 << 20,       // floats of a buffer; half of it takes more than one message
    ANNOUNCED = 64 * 1024, // bytes from which MPI sends only a header until the peer receives
    POSTS_MAX = 1024,
};

typedef struct Post {
    bool sends;
    int peer, bytes;
    int waits; // number of completed waits for all messages before it
} Post;

static struct {
    Post posts[POSTS_MAX];
    int count, waits;
} seen;

static ProcessGroup *group; // of all ranks

static int hosts(void) {
    return atoi(getenv("FAKE_HOSTS"));
}

static void see(bool sends, int bytes, int peer) {
    assert_true(seen.count < POSTS_MAX);
    seen.posts[seen.count++] = (Post){sends, peer, bytes, seen.waits};
}

// ---- between the backend and MPI ----------------------------------------------------------------

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    see(true, count, to);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request) {
    see(false, count, from);
    return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Testall(int count, MPI_Request requests[], int *done, MPI_Status statuses[]) {
    int result = PMPI_Testall(count, requests, done, statuses);
    if (*done) seen.waits++;
    return result;
}

// ---- the tests ----------------------------------------------------------------------------------

static void run(Collective collective) {
    Error err = {0};
    seen.count = 0;
    if (pg_run(group, collective, &err) != 0) fail_msg("%s", err.message);
}

// Where two ranks exchange large messages, each rank posts all its sends before its first receive
// from the peer.
static void check_order(Collective collective) {
    int large = 0;
    run(collective);
    for (int s = 0; s < seen.count; s++) {
        const Post *send = &seen.posts[s];
        if (!send->sends || send->bytes < ANNOUNCED) continue;
        large++;
        for (int r = 0; r < s; r++) {
            const Post *before = &seen.posts[r];
            if (!before->sends && before->bytes >= ANNOUNCED && before->peer == send->peer &&
                before->waits == send->waits)
                fail_msg("of %d messages, number %d asks rank %d for %d bytes, and %d sends it %d",
                         seen.count, r, send->peer, before->bytes, s, send->bytes);
        }
    }
    assert_true(large > 0);
}

static void messages_are_announced_before_any_is_asked_for(void **state) {
    float *mine = memory_zalloc(COUNT * sizeof *mine);
    float *all = memory_zalloc(COUNT * RANKS_MAX * sizeof *all);
    (void)state;
    if (pg_size(group) > hosts()) skip();
    check_order(pg_all_reduce(mine, COUNT, PG_F32, PG_SUM));
    check_order(pg_reduce_scatter(all, mine, COUNT, PG_F32, PG_SUM));
    check_order(pg_all_gather(mine, all, COUNT, PG_F32));
    free(mine);
    free(all);
}

// Sums come back while other messages are in flight, so each must be small enough for MPI to send
// it before the peer posts a receive.
static void hosts_hand_on_what_nobody_asks_for(void **state) {
    Error err = {0};
    int chunks = 0;
    (void)state;
    const int world = pg_size(group);
    if (world == hosts()) skip();
    float *mine = pg_shared_alloc(group, COUNT * sizeof *mine, &err);
    if (!mine) fail_msg("%s", err.message);
    for (int i = 0; i < COUNT; i++) mine[i] = (float)(pg_rank(group) + i % 5);
    run(pg_all_reduce(mine, COUNT, PG_F32, PG_SUM));
    for (int i = 0; i < seen.count; i++) {
        if (seen.posts[i].bytes >= ANNOUNCED)
            fail_msg("a message of %d bytes to or from rank %d", seen.posts[i].bytes,
                     seen.posts[i].peer);
        chunks += seen.posts[i].sends && seen.posts[i].bytes > ANNOUNCED / 2;
    }
    // A rank sums half of the buffer of its host and sends it to its partner on the other host.
    assert_true((size_t)chunks >= COUNT * sizeof *mine / 2 / ANNOUNCED);
    for (int i = 0; i < COUNT; i++)
        assert_true(mine[i] == (float)(world * (world - 1) / 2 + i % 5 * world));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_announced_before_any_is_asked_for),
        cmocka_unit_test(hosts_hand_on_what_nobody_asks_for),
    };
    Rendezvous me;
    Error err = {0};
    must_do(init_from_env(&me, false, &err), &err);
    must_do(pg_opener_mpi.prepare(me.rank, me.world_size, 60, &err), &err);
    group = pg_opener_mpi.open(&(PgEndpoint){.rank = me.rank,
                                             .world = me.world_size,
                                             .options = &(PgOptions){.timeout_s = 60}},
                               &err);
    if (!group) error_exit(&err);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pg_close(group);
    return failed != 0;
}
