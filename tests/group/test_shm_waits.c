/* test_shm_waits.c: waits of the shm backend: how long they spin, which ranks they find gone, and
 * their end when the group breaks.
 */
#include "tests/rigs/rank_failures.h"

#include <errno.h>
#include <sys/resource.h>

#include "ddp/group/backends.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/shm/shm_internal.h"

// A rank's wait spins briefly if the ranks outnumber the processors.
static int processors; // 0: the machine's

int __real_get_nprocs(void);
int __wrap_get_nprocs(void);

int __wrap_get_nprocs(void) {
    return processors ? processors : __real_get_nprocs();
}

static void ranks_that_share_processors(void **state) {
    (void)state;
    for (processors = 2; processors <= 4; processors++) {
        ProcessGroup *groups[3];
        Error error = {0};
        assert_int_equal(pg_shm_threads(3, &(PgOptions){.timeout_s = 1}, groups, &error), 0);
        for (int r = 0; r < 3; r++) {
            const PgShm *shm = groups[r]->state;
            assert_int_equal(shm->spins, processors < 3 ? SYNC_SPINS_CROWDED : SYNC_SPINS);
            pg_close(groups[r]);
        }
    }
    processors = 0;
}

// no_stat: each read of this thread, of /proc/PID/stat, returns stat_length and sets errno.
static _Thread_local bool no_stat;
static _Thread_local int stat_errno;
static _Thread_local ssize_t stat_length;

ssize_t __real_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes);

ssize_t __wrap_read(int fd, void *data, size_t bytes) {
    if (!no_stat) return __real_read(fd, data, bytes);
    errno = stat_errno;
    return stat_length;
}

static void *open_rank(void *endpoint) {
    Error error = {0};
    return pg_opener_shm.open(endpoint, &error);
}

// Rank 1 is absent. Rank 0 ends its wait before the deadline only if rank 1's process has ended.
static void a_process_is_gone_if_proc_says_so(void **state) {
    (void)state;
    enum { NO_PID = 1 << 22 }; // beyond the kernel's largest
    static const struct Case {
        bool no_stat;
        ssize_t length; // of the read
        int error, pid; // its errno; the pid that rank 1 announced, 0: this process
        bool no_descriptor, gone;
    } CASES[] = {
        {false, 0, 0, 0, false, false},     {true, -1, ESRCH, 0, false, true},
        {true, -1, EIO, 0, false, false},   {true, 0, ESRCH, 0, false, false},
        {false, 0, 0, NO_PID, false, true}, {false, 0, 0, 0, true, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        if (c->no_descriptor && (UNDER_TSAN || UNDER_ASAN)) continue; // their runtimes open files
        Error error = {0};
        pthread_t thread;
        struct rlimit before;
        PgEndpoint zero = {.world = 2, .options = &(PgOptions){.timeout_s = 60}};
        assert_int_equal(pg_opener_shm.create(&zero, &error), 0);
        PgEndpoint one = zero;
        one.rank = 1;
        assert_int_equal(pg_opener_shm.reach(&one, &error), 0);
        void *absent = NULL;
        assert_int_equal(pthread_create(&thread, NULL, open_rank, &one), 0);
        ProcessGroup *group = pg_opener_shm.open(&zero, &error);
        pthread_join(thread, &absent);
        assert_true(group && absent);
        PgShm *shm = group->state;
        group->timeout_s = c->gone ? 10 : 0.15;
        sync_store(&shm->control->slots[2].presence, RANK_CLOSED); // beyond the ranks: no slot
        if (c->pid) sync_store(&shm->control->slots[1].pid, (uint32_t)c->pid);
        getrlimit(RLIMIT_NOFILE, &before);
        if (c->no_descriptor) setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max});
        no_stat = c->no_stat;
        stat_errno = c->error;
        stat_length = c->length;
        assert_int_equal(pg_run(group, pg_barrier(), &error), -1);
        no_stat = false;
        setrlimit(RLIMIT_NOFILE, &before);
        must_contain(error.message, c->gone ? ") is gone;" : "rank 1 did not arrive within 0.1");
        pg_close(group);
        pg_close(absent);
    }
}

// The first abort wakes the ranks that sleep at a barrier, and its message stays.
static _Thread_local const SyncWord *woken[4];
static _Thread_local int wakes;

void __real_sync_wake(SyncWord *word);
void __wrap_sync_wake(SyncWord *word);

void __wrap_sync_wake(SyncWord *word) {
    if (wakes < 4) woken[wakes] = word;
    wakes++;
    __real_sync_wake(word);
}

static void an_abort_wakes_every_rank(void **state) {
    (void)state;
    for (int first = 0; first < 3; first++) {
        ProcessGroup *groups[3];
        Error error = {0};
        assert_int_equal(pg_shm_threads(3, &(PgOptions){.timeout_s = 60}, groups, &error), 0);
        PgShm *shm = groups[first]->state;
        wakes = 0;
        shm_abort(shm, "the first");
        assert_int_equal(wakes, 3);
        for (int r = 0; r < 3; r++) assert_ptr_equal(woken[r], &shm->control->slots[r].arrived);
        for (int r = 0; r < 3; r++) shm_abort(groups[r]->state, "a later one");
        assert_int_equal(wakes, 3);
        for (int r = 0; r < 3; r++) {
            error = (Error){0};
            assert_int_equal(pg_run(groups[r], pg_barrier(), &error), -1);
            assert_string_equal(error.message, "the first");
        }
        for (int r = 0; r < 3; r++) pg_close(groups[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_processors),
        cmocka_unit_test(a_process_is_gone_if_proc_says_so),
        cmocka_unit_test(an_abort_wakes_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
