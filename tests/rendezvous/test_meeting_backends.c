/* test_meeting_backends.c: the rendezvous' calls of a backend (ddp/group/backends.h): a GPU for
 * each rank, an address, an answer from each rank, a store that the group keeps. The backend is shm
 * with functions replaced by this test.
 */
#include "tests/rigs/meeting_ranks.h"

#include <sys/mman.h>

#include "common/base/machine.h"
#include "common/base/memory.h"
#include "ddp/group/backends.h"

typedef struct Page {
    char gpu[RANKS_MAX][PG_CARD_MAX]; // each rank's GPU; "": reading it fails
    int refuses[RANKS_MAX];           // the function that fails on each rank
    int releases[RANKS_MAX], leaves[RANKS_MAX];
} Page;

enum { NOTHING, CREATE, REACH, OPEN };

static Page *page;
static PgOpener backend;
static PgEndpoint kept; // of the group that this rank has opened

static int read_card(const Device *device, int rank, char card[PG_CARD_MAX], Error *err) {
    assert_null(device);
    strcpy(card, page->gpu[rank]);
    return *card ? 0 : error_set(err, STATUS_FAILED, "rank %d has no GPU", rank);
}

static int create_address(PgEndpoint *endpoint, Error *err) {
    if (page->refuses[endpoint->rank] != CREATE) return pg_opener_shm.create(endpoint, err);
    return error_set(err, STATUS_USAGE, "rank %d finds no address", endpoint->rank);
}

static int reach_address(PgEndpoint *endpoint, Error *err) {
    if (page->refuses[endpoint->rank] != REACH) return pg_opener_shm.reach(endpoint, err);
    return error_set(err, STATUS_FAILED, "rank %d finds the way blocked", endpoint->rank);
}

static ProcessGroup *open_end(PgEndpoint *endpoint, Error *err) {
    kept = *endpoint;
    if (page->refuses[endpoint->rank] != OPEN) return pg_opener_shm.open(endpoint, err);
    pg_opener_shm.release(endpoint);
    endpoint->found = NULL;
    return error_null(err, STATUS_FAILED, "rank %d finds it closed", endpoint->rank);
}

static void release_address(PgEndpoint *endpoint) {
    page->releases[endpoint->rank]++;
    if (endpoint->found) pg_opener_shm.release(endpoint);
}

const PgOpener *__wrap_pg_backend_find(const char *name, const Device *device, Error *err);

const PgOpener *__wrap_pg_backend_find(const char *name, const Device *device, Error *err) {
    (void)name, (void)device, (void)err;
    return &backend;
}

static enum { REAL, UNREADABLE, EMPTY, LONG } namespace; // of this process, in /proc
static char last = 'x'; // of the part of a long namespace's name that a card holds

ssize_t __real_readlink(const char *path, char *text, size_t bytes);
ssize_t __wrap_readlink(const char *path, char *text, size_t bytes);

ssize_t __wrap_readlink(const char *path, char *text, size_t bytes) {
    if (namespace == REAL) return __real_readlink(path, text, bytes);
    if (namespace != LONG) return namespace == EMPTY ? 0 : -1;
    memset(text, 'x', bytes);
    if (bytes == 47) text[46] = last;
    return (ssize_t)bytes;
}

static int setup(void **state) {
    (void)state;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    backend = pg_opener_shm;
    backend.create = create_address;
    backend.reach = reach_address;
    backend.open = open_end;
    backend.release = release_address;
    return page == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    return munmap(page, sizeof *page);
}

// All ranks of a world of 3 report this message; "": success. says[r]: rank r's message.
static void meet(Life *life, const char *says[3]) {
    Rendezvous ranks[3];
    Outcome outcomes[3];
    const int port = free_port();
    for (int r = 0; r < 3; r++) ranks[r] = place(r, 3, port);
    run_lives(ranks, 3, LONG_S, life, outcomes);
    for (int r = 0; r < 3; r++) {
        const bool usage = strstr(says[r], "no address") || strstr(says[r], "share a GPU") ||
                           strstr(says[r], "one system");
        assert_string_equal(outcomes[r].message, says[r]);
        assert_int_equal(outcomes[r].status, !*says[r] ? 0 : usage ? STATUS_USAGE : STATUS_FAILED);
    }
}

static void meet_alike(const char *says) {
    meet(live, (const char *[3]){says, says, says});
}

static void set_gpus(const char *a, const char *b, const char *c) {
    backend.card = read_card;
    strcpy(page->gpu[0], a);
    strcpy(page->gpu[1], b);
    strcpy(page->gpu[2], c);
}

static void each_rank_has_a_gpu(void **state) {
    (void)state;
#define WHAT_TO_DO                                                                       \
    ": start one rank per GPU (ddprun --nproc-per-node gpu), or, for correctness only, " \
    "ddprun --fake-hosts"
    set_gpus("gpu-1", "gpu-2", "gpu-3");
    meet_alike("");
    set_gpus("gpu-1", "gpu-2", "gpu-2");
    meet_alike("ranks 1 and 2 share a GPU, gpu-2" WHAT_TO_DO);
    set_gpus("gpu-1", "gpu-2", "gpu-1");
    meet_alike("ranks 0 and 2 share a GPU, gpu-1" WHAT_TO_DO);
    set_gpus("gpu-1", "gpu-1", "gpu-3");
    meet_alike("ranks 0 and 1 share a GPU, gpu-1" WHAT_TO_DO);
    backend.card = NULL; // several ranks may use one device
    meet_alike("");
    set_gpus("", "gpu-2", "gpu-3");
    Rendezvous alone = place(0, 1, free_port());
    Outcome outcome;
    run_ranks(&alone, 1, LONG_S, &outcome);
    assert_string_equal(outcome.message, "rank 0 has no GPU");
}

static Outcome live_in_a_namespace(const Rendezvous *me, double timeout_s) {
    last = (char)('0' + me->rank);
    return live(me, timeout_s);
}

// Namespaces without a name count as equal. Of a long name, a card holds 47 characters.
static void names_of_namespaces(void **state) {
    (void)state;
    char host[72];
    for (namespace = UNREADABLE; namespace <= LONG; namespace ++) meet_alike("");
    namespace = LONG;
    machine_name(host, sizeof host);
    char *says = memory_format("backend shm needs all ranks in one system: rank 0 is on %s, rank 1 "
                               "on %s in another container: use --backend mpi",
                               host, host);
    meet(live_in_a_namespace, (const char *[3]){says, says, says});
    namespace = REAL;
    free(says);
}

static void released(int rank_0, int rank_1, int rank_2) {
    assert_int_equal(page->releases[0], rank_0);
    assert_int_equal(page->releases[1], rank_1);
    assert_int_equal(page->releases[2], rank_2);
}

static void a_step_fails(void **state) {
    (void)state;
    page->refuses[0] = CREATE;
    meet_alike("rank 0 finds no address");
    released(1, 1, 1);
    page->refuses[0] = NOTHING;
    page->refuses[2] = REACH;
    meet(live, (const char *[3]){"rank 2 cannot attach: rank 2 finds the way blocked",
                                 "rank 2 cannot attach: rank 2 finds the way blocked",
                                 "rank 2 finds the way blocked"});
    released(2, 2, 2);
}

static void an_end_is_closed(void **state) {
    (void)state;
    Rendezvous alone = place(0, 1, free_port());
    Outcome outcome;
    page->refuses[0] = OPEN;
    run_ranks(&alone, 1, LONG_S, &outcome);
    assert_string_equal(outcome.message, "rank 0 finds it closed");
}

static void note_leave(void) {
    page->leaves[kept.rank]++;
    kept.leave(kept.context);
}

// A group that keeps the store has a connection of its own, with the rendezvous' prefix, which
// works until the group is closed.
static Outcome keep_store(const Rendezvous *me, double timeout_s) {
    Error err = {0};
    Outcome outcome = {.status = STATUS_FAILED};
    const int before = open_descriptors();
    ProcessGroup *group = init_process_group("auto", me, NULL, timeout_s, &err);
    int64_t users = 0;
    char plan[400] = "";
    if (!group || !kept.store || store_add(kept.store, "users", 1, &users, &err) != 0 ||
        store_compare_set(kept.store, "plan", "-", "-", plan, sizeof plan, &err) != 0 ||
        pg_run(group, pg_barrier(), &err) != 0 ||
        store_add(kept.store, "users", 0, &users, &err) != 0) {
        snprintf(outcome.message, sizeof outcome.message, "%.399s", err.message);
        return outcome;
    }
    pg_close(group);
    store_close(kept.store);
    note_leave();
    const int left = open_descriptors() - before;
    outcome.status = users == 3 && strncmp(plan, "ok ", 3) == 0 && left == 0 ? 0 : STATUS_FAILED;
    if (outcome.status)
        snprintf(outcome.message, sizeof outcome.message, "%d users, plan '%.100s', %d left",
                 (int)users, plan, left);
    return outcome;
}

static void a_group_keeps_the_store(void **state) {
    (void)state;
    backend.keeps_store = true;
    meet(keep_store, (const char *[3]){"", "", ""});
    for (int r = 0; r < 3; r++) assert_int_equal(page->leaves[r], 1);
    released(0, 0, 0);
}

#define WITH_PAGE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PAGE(each_rank_has_a_gpu), WITH_PAGE(names_of_namespaces),     WITH_PAGE(a_step_fails),
        WITH_PAGE(an_end_is_closed),    WITH_PAGE(a_group_keeps_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
