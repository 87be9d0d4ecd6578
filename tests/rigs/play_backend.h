/* play_backend.h: a simulated backend: it records each call in a diary, and fails, blocks or delays
 * calls as the test requests. The group is rank 0 of several; no other rank exists.
 */
#ifndef TESTS_RIGS_PLAY_BACKEND_H
#define TESTS_RIGS_PLAY_BACKEND_H

#include <pthread.h>
#include <time.h>

#include "tests/rigs/check.h"

#include "ddp/group/group_internal.h"

enum { TIMEOUT_S = 20, DIARY = 2000 };

typedef struct Play {            // the backend's state
    pthread_mutex_t mutex, gate; // gate: held by the test, it blocks run
    char diary[DIARY];           // "run 1; abort: why; "
    int fails_in;                // call of run that fails, counted from 1; 0: none
    PgCall last;                 // last call of run
    // A backend that enqueues: calls in flight, and the behaviour of poll.
    PgCall flying[8];
    int flying_count;
    bool poll_fails, holds; // holds: poll completes no call
    int joined, polls;
    bool aborted;
    PgWork *behind; // a call queued behind a failing call: done before the next poll
    // issue breaks the group, or marks the call as recorded into a graph, which takes 20 ms.
    ProcessGroup *breaks;
    bool records;
    bool slow;       // run takes 20 ms
    float memory[4]; // result of each pg_shared_alloc
} Play;

__attribute__((format(printf, 2, 3))) static inline void note(Play *play, const char *format, ...) {
    pthread_mutex_lock(&play->mutex);
    size_t used = strlen(play->diary);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(play->diary + used, DIARY - used, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&play->mutex);
}

static inline void diary_is(Play *play, const char *expected) {
    pthread_mutex_lock(&play->mutex);
    assert_string_equal(play->diary, expected);
    play->diary[0] = '\0';
    pthread_mutex_unlock(&play->mutex);
}

static inline int play_run(void *state, PgCall *call, uint64_t *moved, Error *err) {
    Play *play = state;
    if (call->recorded || play->slow) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    pthread_mutex_lock(&play->gate);
    pthread_mutex_unlock(&play->gate);
    note(play, "run %llu; ", (unsigned long long)call->sequence);
    pthread_mutex_lock(&play->mutex);
    play->last = *call;
    const bool fails = play->fails_in > 0 && --play->fails_in == 0;
    if (call->ticket && !fails) {
        call->in_flight = true;
        play->flying[play->flying_count++] = *call;
    }
    pthread_mutex_unlock(&play->mutex);
    *moved += 100;
    return fails ? error_set(err, STATUS_FAILED, "a cable is loose") : 0;
}

static inline void abort_play(void *state, const char *message) {
    ((Play *)state)->aborted = true; // called by the polling thread
    note(state, "abort: %s; ", message);
}

static inline void check_place(const Play *play) {
    if (!play->aborted || !play->behind) return;
    pthread_mutex_lock(&play->behind->group->mutex);
    const bool done = play->behind->done;
    pthread_mutex_unlock(&play->behind->group->mutex);
    if (!done) note((Play *)play, "polled before failed calls were done; ");
}

static inline void close_play(void *state) {
    note(state, "close; ");
}

static inline void *play_shared_alloc(void *state, const PgCall *call, Error *err) {
    Play *play = state;
    note(play, "allocate %zu%s; ", call->collective.count, call->dry ? " dry" : "");
    if (play->fails_in != 1) return play->memory;
    return error_null(err, STATUS_FAILED, "no memory");
}

static inline void *play_peer_memory(void *state, const void *mine, int rank) {
    (void)state;
    return (float *)mine + rank;
}

static inline int play_new_subgroup(void *state, const PgCall *call, void **member, Error *err) {
    note(state, "members %zx; ", call->collective.count);
    (void)err;
    *member = call->collective.count & 1 ? state : NULL; // if rank 0 is a member
    return 0;
}

static const PgBackend SIMPLE = {.name = "play",
                                 .run = play_run,
                                 .shared_alloc = play_shared_alloc,
                                 .peer_memory = play_peer_memory,
                                 .new_subgroup = play_new_subgroup,
                                 .abort = abort_play,
                                 .close = close_play};

static inline int play_issue(void *state, PgCall *call, Error *err) {
    Play *play = state;
    (void)err;
    note(play, "issue; ");
    call->ticket = state;
    call->recorded = play->records;
    if (play->breaks) pg_break(play->breaks, &(Error){STATUS_FAILED, "a late failure"});
    return 0;
}

static inline void play_join(void *state, PgCall *call) {
    Play *play = state;
    assert_ptr_equal(call->ticket, state);
    play->joined++;
}

static inline int play_poll(void *state, PgCall *done, bool *busy, Error *err) {
    Play *play = state;
    int status = 0;
    check_place(play);
    pthread_mutex_lock(&play->mutex);
    play->polls++;
    if (play->poll_fails) {
        status = error_set(err, STATUS_FAILED, "the device is gone");
    } else if (play->flying_count > 0 && !play->holds) {
        *done = play->flying[0];
        memmove(play->flying, play->flying + 1, sizeof play->flying - sizeof *play->flying);
        play->flying_count--;
        status = 1;
    }
    *busy = play->flying_count > 0;
    pthread_mutex_unlock(&play->mutex);
    return status;
}

static const PgBackend QUEUED = {.name = "queue",
                                 .run = play_run,
                                 .abort = abort_play,
                                 .close = close_play,
                                 .issue = play_issue,
                                 .join = play_join,
                                 .poll = play_poll};

static inline void play_open(Play *play) {
    *play = (Play){.fails_in = 0};
    pthread_mutex_init(&play->mutex, NULL);
    pthread_mutex_init(&play->gate, NULL);
}

static inline ProcessGroup *open_group(Play *play, const PgBackend *backend, int size) {
    Error err = {0};
    play_open(play);
    const PgOptions options = {.timeout_s = TIMEOUT_S};
    ProcessGroup *group = pg_new(backend, play, 0, size, &options, &err);
    CHECK_OK(group, err);
    return group;
}

#endif
