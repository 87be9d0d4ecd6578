/* test_sync.c: waiting for a SyncWord: no wake-up is lost, and no wait outlasts its deadline or an
 * abort.
 *
 * The threads are for ThreadSanitizer (cmake -DSANITIZE=thread). Deadlines are generous: the tests
 * check which of the three results is returned, never how long the wait took.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/sync.h"

enum { ROUNDS = 2000, ASLEEP_ROUNDS = 20 };

static uint64_t in_seconds(double seconds) {
    return clock_ns() + (uint64_t)(seconds * 1e9);
}

typedef struct Pair {
    SyncWord ping, pong, abort_flag;
    int payload; // plain memory, published through ping and pong
    bool nap;    // sleep first, so that the other side blocks
    int rounds;
    SyncResult result;
} Pair;

static void *answer(void *argument) {
    Pair *pair = argument;
    for (uint32_t round = 1; round <= (uint32_t)pair->rounds; round++) {
        pair->result = sync_wait(&pair->ping, round, NULL, in_seconds(60), SYNC_SPINS);
        if (pair->result != SYNC_DONE) return NULL;
        pair->payload++;
        if (pair->nap) usleep(5000);
        sync_store(&pair->pong, round);
    }
    return NULL;
}

static void play(bool nap, int rounds) {
    Pair *pair = memory_zalloc(sizeof *pair);
    pair->nap = nap;
    pair->rounds = rounds;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer, pair), 0);
    for (uint32_t round = 1; round <= (uint32_t)rounds; round++) {
        pair->payload++;
        sync_store(&pair->ping, round);
        assert_int_equal(sync_wait(&pair->pong, round, NULL, in_seconds(60), SYNC_SPINS),
                         SYNC_DONE);
    }
    pthread_join(thread, NULL);
    assert_int_equal(pair->result, SYNC_DONE);
    assert_int_equal(pair->payload, 2 * rounds);
    assert_int_equal(atomic_load(&pair->ping.sleepers), 0);
    assert_int_equal(atomic_load(&pair->pong.sleepers), 0);
    free(pair);
}

static void test_threads_take_turns(void **state) {
    (void)state;
    play(false, ROUNDS);
    play(true, ASLEEP_ROUNDS);
}

// SyncWords contain no pointers: processes may map them at different addresses.
static void test_processes_take_turns(void **state) {
    (void)state;
    Pair *pair =
        mmap(NULL, sizeof *pair, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pair != MAP_FAILED);
    pair->nap = true;
    pair->rounds = ASLEEP_ROUNDS;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        answer(pair);
        _exit(pair->result == SYNC_DONE ? 0 : 1);
    }
    for (uint32_t round = 1; round <= ASLEEP_ROUNDS; round++) {
        sync_store(&pair->ping, round);
        assert_int_equal(sync_wait(&pair->pong, round, NULL, in_seconds(60), SYNC_SPINS),
                         SYNC_DONE);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pair->payload, ASLEEP_ROUNDS);
    munmap(pair, sizeof *pair);
}

// Counts this thread's calls of sched_yield (ld --wrap).
int __real_sched_yield(void);
int __wrap_sched_yield(void);
static _Thread_local int yields;

int __wrap_sched_yield(void) {
    yields++;
    return __real_sched_yield();
}

// A waiting thread must not call sched_yield, which would cost a computing thread on its core a
// time slice.
static void test_no_yield(void **state) {
    (void)state;
    SyncWord word = {0};
    assert_int_equal(sync_wait(&word, 1, NULL, in_seconds(0.02), SYNC_SPINS), SYNC_TIMEOUT);
    assert_int_equal(sync_wait(&word, 1, NULL, in_seconds(0.02), SYNC_SPINS_CROWDED), SYNC_TIMEOUT);
    assert_int_equal(yields, 0);
}

static void test_timeout(void **state) {
    (void)state;
    SyncWord word = {0};
    assert_int_equal(sync_wait(&word, 1, NULL, 0, SYNC_SPINS), SYNC_TIMEOUT);
    uint64_t deadline = in_seconds(0.12); // more than two polling intervals
    assert_int_equal(sync_wait(&word, 1, NULL, deadline, SYNC_SPINS), SYNC_TIMEOUT);
    assert_true(clock_ns() >= deadline);
    assert_int_equal(atomic_load(&word.sleepers), 0);
    // A word that has reached the target is SYNC_DONE even after the deadline.
    sync_store(&word, 1);
    assert_int_equal(sync_wait(&word, 1, NULL, 0, SYNC_SPINS), SYNC_DONE);
}

uint64_t __real_clock_ns(void);
uint64_t __wrap_clock_ns(void);
static SyncWord *advanced; // by the next reading of the clock, which is then past every deadline

uint64_t __wrap_clock_ns(void) {
    if (!advanced) return __real_clock_ns();
    sync_store(advanced, 1);
    return UINT64_MAX;
}

// The waiter has loaded the word and then is late itself: the word is reached at the deadline.
static void test_reached_at_the_deadline(void **state) {
    (void)state;
    for (int spins = 0; spins <= SYNC_SPINS_CROWDED; spins += SYNC_SPINS_CROWDED) {
        SyncWord word = {0};
        const uint64_t deadline = in_seconds(60);
        advanced = &word;
        const SyncResult result = sync_wait(&word, 1, NULL, deadline, spins);
        advanced = NULL;
        assert_int_equal(result, SYNC_DONE);
    }
}

static void test_sequence_numbers_wrap(void **state) {
    (void)state;
    SyncWord word = {0};
    sync_store(&word, UINT32_MAX);
    assert_int_equal(sync_wait(&word, UINT32_MAX - 5, NULL, 0, SYNC_SPINS), SYNC_DONE); // passed
    assert_int_equal(sync_wait(&word, 2, NULL, 0, SYNC_SPINS), SYNC_TIMEOUT);           // 3 ahead
    sync_store(&word, 2);
    assert_int_equal(sync_wait(&word, UINT32_MAX, NULL, 0, SYNC_SPINS), SYNC_DONE);
    assert_int_equal(sync_load(&word), 2);
}

typedef struct Waiter {
    pthread_t thread;
    SyncWord *word, *abort_flag;
    SyncResult result;
} Waiter;

static void *wait_for_ever(void *argument) {
    Waiter *waiter = argument;
    waiter->result = sync_wait(waiter->word, 1, waiter->abort_flag, in_seconds(60), SYNC_SPINS);
    return NULL;
}

// An abort ends the waits of four threads, at least two of them blocked, with and without a
// wake-up.
static void abort_waiters(bool wake) {
    SyncWord *words = memory_zalloc(2 * sizeof *words);
    Waiter waiters[4];
    for (int i = 0; i < 4; i++) {
        waiters[i] = (Waiter){.word = &words[0], .abort_flag = &words[1], .result = SYNC_DONE};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_ever, &waiters[i]), 0);
    }
    while (atomic_load(&words[0].sleepers) < 2) usleep(1000);
    sync_store(&words[1], 1);
    if (wake) sync_wake(&words[0]);
    for (int i = 0; i < 4; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].result, SYNC_ABORTED);
    }
    assert_int_equal(sync_wait(&words[0], 1, &words[1], in_seconds(60), SYNC_SPINS), SYNC_ABORTED);
    free(words);
}

static void test_abort(void **state) {
    (void)state;
    abort_waiters(true);
    abort_waiters(false);
}

static void test_all_sleepers_wake(void **state) {
    (void)state;
    SyncWord *words = memory_zalloc(2 * sizeof *words);
    Waiter waiters[4];
    for (int i = 0; i < 4; i++) {
        waiters[i] = (Waiter){.word = &words[0], .abort_flag = &words[1], .result = SYNC_TIMEOUT};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_ever, &waiters[i]), 0);
    }
    while (atomic_load(&words[0].sleepers) < 4) usleep(1000);
    sync_store(&words[0], 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].result, SYNC_DONE);
    }
    free(words);
}

enum { CLAIMS = 100000 };

typedef struct Claimed { // incremented by the thread that has claimed the word
    SyncWord owner;
    volatile long count;
} Claimed;

static void *count_as_owner(void *argument) {
    Claimed *claimed = argument;
    for (int i = 0; i < CLAIMS; i++) {
        while (!sync_claim(&claimed->owner, 0, 1)) sched_yield();
        claimed->count++;
        sync_store(&claimed->owner, 0);
    }
    return NULL;
}

// A word that several threads claim at once is claimed by one at a time: no increment is lost.
static void test_claim(void **state) {
    (void)state;
    Claimed claimed = {.count = 0};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_as_owner, &claimed), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_int_equal(claimed.count, 3 * CLAIMS);
    assert_false(sync_claim(&claimed.owner, 1, 9));
    assert_int_equal(sync_load(&claimed.owner), 0);
    assert_true(sync_claim(&claimed.owner, 0, 9));
    assert_int_equal(sync_load(&claimed.owner), 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        // Run first, while the process has one thread: a child forked later may not start threads.
        cmocka_unit_test(test_processes_take_turns),
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_no_yield),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_reached_at_the_deadline),
        cmocka_unit_test(test_sequence_numbers_wrap),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_all_sleepers_wake),
        cmocka_unit_test(test_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
