/* 01-run-shards.grade.c: the work is a barrier: no thread leaves before all have arrived. So
 * threads that run one after the other are detected independently of their speed.
 */
#include "tutorials/03-threads/exercises/01-run-shards.h"

#include <pthread.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_03_01;

typedef struct Meeting {
    pthread_mutex_t mutex; // protects the fields below
    pthread_cond_t changed;
    int expected, came, left;
    int slow; // the shard that sleeps
    int runs[MOST_SHARDS];
    bool timed_out; // a thread waited two seconds
    bool outside;   // a call with an invalid shard number
    bool caller;    // a shard ran in the thread that called run_shards
    pthread_t who;  // the thread that called run_shards
} Meeting;

static Meeting meeting_of(int expected) {
    return (Meeting){.mutex = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER,
                     .expected = expected,
                     .who = pthread_self()};
}

// Counts an arrived shard; with `meet`, also waits for the others.
static void come(Meeting *m, int shard, bool meet) {
    struct timespec deadline = clock_deadline(2.0);
    pthread_mutex_lock(&m->mutex);
    if (shard >= 0 && shard < m->expected)
        m->runs[shard]++;
    else
        m->outside = true;
    m->caller = m->caller || pthread_equal(pthread_self(), m->who);
    m->came++;
    pthread_cond_broadcast(&m->changed);
    while (meet && m->came < m->expected && !m->timed_out && !m->caller)
        if (pthread_cond_clockwait(&m->changed, &m->mutex, CLOCK_MONOTONIC, &deadline) != 0)
            m->timed_out = true;
    pthread_mutex_unlock(&m->mutex);
}

static void leave(Meeting *m) {
    // After this time a caller that does not join has returned.
    struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
    pthread_mutex_lock(&m->mutex);
    m->left++;
    pthread_mutex_unlock(&m->mutex);
}

// The slow shard sleeps longer than a solution that sleeps instead of joining would.
static void linger(void *context, int shard) {
    struct timespec moment = {.tv_sec = 1, .tv_nsec = 200 * 1000 * 1000};
    come(context, shard, false);
    if (shard == ((Meeting *)context)->slow) clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
    leave(context);
}

static void note(void *context, int shard) {
    come(context, shard, false);
    leave(context);
}

static void meet(void *context, int shard) {
    come(context, shard, true);
    leave(context);
}

// The copy made at the return counts: a thread that still runs changes *m later.
static void run(Grade *grade, int count, void (*work)(void *, int), Meeting *m) {
    Meeting seen = *m;
    if (grade_plays(grade)) {
        STUDENT(grade, run_shards)(count, work, m);
        pthread_mutex_lock(&m->mutex);
        seen = *m;
        pthread_mutex_unlock(&m->mutex);
    }
    GRADE_OUT(grade, seen);
    if (!grade_plays(grade)) *m = seen;
}

static void every_shard(Grade *grade) {
    static Meeting m, long_one; // static: threads that were not joined may outlive this function
    for (int count = 1; count <= 5; count++) {
        m = meeting_of(count);
        run(grade, count, note, &m);
        GRADE_EXPECT(grade, m.left == m.came && m.came > 0,
                     "It returned while a shard was still running: join every thread.");
        GRADE_EXPECT(grade, !m.outside,
                     "It ran a shard that is none of 0 to count - 1. Was a thread given the "
                     "address of the loop's variable? That has moved on when the thread looks.");
        for (int i = 0; i < count; i++)
            GRADE_EXPECT(grade, m.runs[i] < 2,
                         "Several threads got the number of the same shard: each needs a struct "
                         "of its own. (shard %d of %d ran %d times)",
                         i, count, m.runs[i]);
        GRADE_EXPECT(grade, m.runs[count - 1] == 1,
                     "The last shard was never run: there are count of them, from 0 to count - "
                     "1.");
        for (int i = 0; i < count; i++)
            GRADE_EXPECT(grade, m.runs[i] == 1, "Shard %d of %d was never run.", i, count);
    }
    for (int slow = 1; slow >= 0; slow--) {
        long_one = meeting_of(2);
        long_one.slow = slow;
        run(grade, 2, linger, &long_one);
        GRADE_EXPECT(grade, long_one.left == 2,
                     "It returned after a while, and a shard was still running: no time is long "
                     "enough, pthread_join waits as long as it takes.");
    }
}

static void own_threads(Grade *grade) {
    static Meeting m;
    m = meeting_of(3);
    run(grade, 3, note, &m);
    GRADE_EXPECT(grade, !m.caller,
                 "A shard ran in the caller's own thread: each shard needs a thread of its own.");
}

static void at_once(Grade *grade) {
    static Meeting m;
    for (int count = 2; count <= 8; count += 3) {
        m = meeting_of(count);
        run(grade, count, meet, &m);
        GRADE_EXPECT(grade, !m.timed_out,
                     "The shards did not run at the same time: start all threads before you wait "
                     "for the first. (one of %d timed out waiting for the others)",
                     count);
    }
}

// The address space of this process. A thread that is neither joined nor detached keeps its stack.
static size_t mapped_bytes(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%zu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t stack_bytes(void) {
    pthread_attr_t attributes;
    size_t bytes = 0;
    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    return bytes;
}

static void often(Grade *grade) {
    static Meeting m;
    m = meeting_of(MOST_SHARDS);
    run(grade, MOST_SHARDS, meet, &m);
    GRADE_EXPECT(grade, m.came == MOST_SHARDS,
                 "Of %d shards %d ran: count may be as large as MOST_SHARDS.", MOST_SHARDS, m.came);
    GRADE_EXPECT(grade, !m.timed_out,
                 "Of %d shards only some ran at the same time: each has a thread of its own, and "
                 "none waits until another's thread is free.",
                 MOST_SHARDS);
    enum { ROUNDS = 20, THREADS = 16 };
    long blocks = 0;
    size_t mapped = 0;
    for (int round = 0; round < ROUNDS; round++) {
        m = meeting_of(THREADS);
        run(grade, THREADS, meet, &m);
        if (round == 0) blocks = watch_blocks(), mapped = mapped_bytes();
        for (int i = 0; i < THREADS; i++)
            GRADE_EXPECT(grade, m.runs[i] == 1,
                         "In round %d of %d, shard %d of %d ran %d times: something is shared that "
                         "each thread should have for itself, or it is too small.",
                         round, ROUNDS, i, THREADS, m.runs[i]);
        GRADE_EXPECT(grade, m.left == THREADS,
                     "In round %d of %d it returned while a shard was still running.", round,
                     ROUNDS);
    }
    blocks = watch_blocks() - blocks;
    bool keeps_stacks =
        mapped > 0 && mapped_bytes() > mapped + (ROUNDS - 1) * THREADS / 2 * stack_bytes();
    GRADE_OUT(grade, blocks);
    GRADE_OUT(grade, keeps_stacks);
    GRADE_EXPECT(grade, !keeps_stacks,
                 "In %d rounds the stacks of more than half of the threads were kept: a thread "
                 "that is not joined is never freed, though it has ended.",
                 ROUNDS - 1);
    GRADE_EXPECT(grade, blocks <= 0,
                 "In 19 rounds %ld blocks of memory were allocated and never freed: free a "
                 "thread's argument after joining the thread.",
                 blocks);
}

const Grader grader_03_01 = {
    "03-threads/01-run-shards",
    {{"every shard once, and all have ended", 4, NULL, every_shard},
     {"threads of their own", 2, "every shard once, and all have ended", own_threads},
     {"at the same time", 3, "threads of their own", at_once},
     {"as many as there may be, and sixteen twenty times", 1, "at the same time", often}}};
