/* test_backend.c: the group's part of a call (issuing, the queue, deadlines, failures, records), on
 * a backend that the test plays: rank 0 of three. Real backends: test_process_group.c.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/peak_memory.h"
#include "tests/rigs/sanitizers.h"
#include "tests/rigs/temp_folder.h"

#include <pthread.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/sync.h"
#include "common/base/trace.h"
#include "ddp/group/group_internal.h"

enum { TIMEOUT_S = 20, DIARY = 2000 };

typedef struct Play {            // the backend's state
    pthread_mutex_t mutex, gate; // gate: run waits for it
    char diary[DIARY];           // "run 1; abort: why; "
    int fails_in;                // calls until run fails; 0: never
    PgCall last;                 // of run
    // Of a backend that enqueues: calls that run has left in flight, and what poll does with them.
    PgCall flying[8];
    int flying_count;
    bool poll_fails, holds; // holds: poll completes nothing
    int joined, polls;
    bool aborted;
    PgWork *behind; // a call queued behind one that fails: not polled before it is done
} Play;

__attribute__((format(printf, 2, 3))) static void note(Play *play, const char *format, ...) {
    pthread_mutex_lock(&play->mutex);
    size_t used = strlen(play->diary);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(play->diary + used, DIARY - used, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&play->mutex);
}

static void diary_is(Play *play, const char *expected) {
    pthread_mutex_lock(&play->mutex);
    assert_string_equal(play->diary, expected);
    play->diary[0] = '\0';
    pthread_mutex_unlock(&play->mutex);
}

static int run(void *state, PgCall *call, uint64_t *moved, Error *err) {
    Play *play = state;
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

static void abort_play(void *state, const char *message) {
    ((Play *)state)->aborted = true; // by the thread that polls
    note(state, "abort: %s; ", message);
}

static void check_place(const Play *play) {
    if (!play->aborted || !play->behind) return;
    pthread_mutex_lock(&play->behind->group->mutex);
    const bool done = play->behind->done;
    pthread_mutex_unlock(&play->behind->group->mutex);
    if (!done) note((Play *)play, "polled before failed calls were done; ");
}

static void close_play(void *state) {
    note(state, "close; ");
}

static const PgBackend SIMPLE = {
    .name = "play", .run = run, .abort = abort_play, .close = close_play};

static int issue(void *state, PgCall *call, Error *err) {
    (void)err;
    note(state, "issue; ");
    call->ticket = state;
    return 0;
}

static void join(void *state, PgCall *call) {
    Play *play = state;
    assert_ptr_equal(call->ticket, state);
    play->joined++;
}

static int poll(void *state, PgCall *done, bool *busy, Error *err) {
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
                                 .run = run,
                                 .abort = abort_play,
                                 .close = close_play,
                                 .issue = issue,
                                 .join = join,
                                 .poll = poll};

static void play_open(Play *play) {
    *play = (Play){.fails_in = 0};
    pthread_mutex_init(&play->mutex, NULL);
    pthread_mutex_init(&play->gate, NULL);
}

static ProcessGroup *open_group(Play *play, const PgBackend *backend, int size) {
    Error err = {0};
    play_open(play);
    const PgOptions options = {.timeout_s = TIMEOUT_S};
    ProcessGroup *group = pg_new(backend, play, 0, size, &options, &err);
    CHECK_OK(group, err);
    return group;
}

// ---- calls --------------------------------------------------------------------------------------

// Fields without a meaning for a collective are 0: ranks compare them (root), and totals count
// buckets by them.
static void constructors_fill_every_field(void **state) {
    (void)state;
    float a[1], b[1];
    const struct Case {
        Collective made, fields;
    } CASES[] = {
        {pg_all_reduce(a, 2, PG_F64, PG_MAX), {PG_ALL_REDUCE, a, a, 2, PG_F64, PG_MAX, 0, 0}},
        {pg_broadcast(a, 2, PG_I32, 3), {PG_BROADCAST, a, a, 2, PG_I32, PG_SUM, 3, 0}},
        {pg_reduce(a, 2, PG_I64, PG_MIN, 3), {PG_REDUCE, a, a, 2, PG_I64, PG_MIN, 3, 0}},
        {pg_all_gather(a, b, 2, PG_U8), {PG_ALL_GATHER, a, b, 2, PG_U8, PG_SUM, 0, 0}},
        {pg_gather(a, b, 2, PG_F16, 3), {PG_GATHER, a, b, 2, PG_F16, PG_SUM, 3, 0}},
        {pg_scatter(a, b, 2, PG_BF16, 3), {PG_SCATTER, a, b, 2, PG_BF16, PG_SUM, 3, 0}},
        {pg_reduce_scatter(a, b, 2, PG_F32, PG_AVG),
         {PG_REDUCE_SCATTER, a, b, 2, PG_F32, PG_AVG, 0, 0}},
        {pg_send(a, 2, PG_F64, 3), {PG_SEND, a, NULL, 2, PG_F64, PG_SUM, 3, 0}},
        {pg_recv(a, 2, PG_F64, 3), {PG_RECV, NULL, a, 2, PG_F64, PG_SUM, 3, 0}},
        {pg_barrier(), {PG_BARRIER, NULL, NULL, 0, PG_U8, PG_SUM, 0, 0}},
        {pg_of_bucket(pg_barrier(), 6), {PG_BARRIER, NULL, NULL, 0, PG_U8, PG_SUM, 0, 7}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Collective *c = &CASES[i].made, *want = &CASES[i].fields;
        assert_int_equal(c->kind, want->kind);
        assert_ptr_equal(c->send, want->send);
        assert_ptr_equal(c->receive, want->receive);
        assert_true(c->count == want->count && c->type == want->type && c->op == want->op);
        assert_true(c->root == want->root && c->bucket == want->bucket);
    }
}

static void calls_are_numbered_and_have_a_deadline(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    float x[3] = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    const uint64_t before = clock_ns();
    assert_int_equal(pg_run(group, pg_all_reduce(x, 3, PG_F32, PG_SUM), &err), 0);
    assert_in_range(play.last.begin_ns, before, clock_ns());
    assert_in_range(play.last.issued_ns, before, play.last.begin_ns);
    assert_true(play.last.deadline_ns - play.last.begin_ns == TIMEOUT_S * 1000000000ull);
    assert_true(play.last.timeout_s == TIMEOUT_S);
    assert_int_equal(pg_run(group, pg_send(x, 3, PG_F32, 1), &err), 0); // not numbered
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    diary_is(&play, "run 1; run 0; run 2; ");
    assert_int_equal(pg_sequence(group), 2);
    assert_int_equal(pg_moved_bytes(group), 300);
    pg_count_moved(group, 5);
    assert_int_equal(pg_moved_bytes(group), 305);
    assert_string_equal(pg_backend(group), "play");
    pg_close(group);
    diary_is(&play, "close; ");
}

// Alone, collectives in place are the identity, and do not reach the backend.
static void a_single_rank_calls_nobody(void **state) {
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        Play play;
        Error err = {0};
        float x[1] = {0};
        ProcessGroup *group = open_group(&play, queued ? &QUEUED : &SIMPLE, 1);
        assert_int_equal(pg_run(group, pg_all_reduce(x, 1, PG_F32, PG_SUM), &err), 0);
        assert_int_equal(pg_run(group, pg_broadcast(x, 1, PG_F32, 0), &err), 0);
        assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
        PgWork *work = pg_start(group, pg_all_reduce(x, 1, PG_F32, PG_SUM), &err);
        assert_int_equal(pg_work_wait(work, NULL, NULL, &err), 0);
        diary_is(&play, "");
        float y[1];
        assert_int_equal(pg_run(group, pg_all_gather(x, y, 1, PG_F32), &err), 0);
        diary_is(&play, queued ? "issue; run 5; " : "run 5; ");
        pg_close(group);
    }
}

typedef struct Seen {
    int begins, fails, closes;
    uint64_t sequence;
    char name[32];
} Seen;

static void begins(void *context, uint64_t sequence, const char *name) {
    Seen *seen = context;
    seen->begins++;
    seen->sequence = sequence;
    snprintf(seen->name, sizeof seen->name, "%s", name);
}
static void fails(void *context) {
    ((Seen *)context)->fails++;
}
static void closes(void *context) {
    ((Seen *)context)->closes++;
}

// The first failure breaks the group: later calls return it and do not reach the backend.
static void the_first_failure_is_every_later_calls(void **state) {
    (void)state;
    Play play;
    Seen seen = {0};
    play_open(&play);
    Error err = {0};
    const PgOptions options = {
        .timeout_s = TIMEOUT_S,
        .observer = {.context = &seen, .begins = begins, .fails = fails, .close = closes}};
    ProcessGroup *group = pg_new(&SIMPLE, &play, 0, 3, &options, &err);
    CHECK_OK(group, err);
    play.fails_in = 2;
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    assert_true(seen.begins == 1 && seen.sequence == 1 && strcmp(seen.name, "barrier") == 0);
    assert_int_equal(pg_check_sound(group, &err), 0);
    assert_int_equal(pg_run(group, pg_barrier(), &err), -1);
    assert_string_equal(err.message, "a cable is loose");
    diary_is(&play, "run 1; run 2; abort: a cable is loose; ");
    for (int again = 0; again < 3; again++) {
        err = (Error){0};
        int status = again == 0   ? pg_run(group, pg_barrier(), &err)
                     : again == 1 ? pg_check_sound(group, &err)
                                  : (pg_start(group, pg_barrier(), &err) ? 0 : -1);
        assert_int_equal(status, -1);
        assert_string_equal(err.message, "a cable is loose");
    }
    const Error late = {.status = STATUS_FAILED, .message = "too late"};
    assert_false(pg_abort(group, &late));
    diary_is(&play, "");
    assert_true(seen.begins == 2 && seen.fails == 0); // it was not this rank that gave up
    pg_close(group);
    assert_int_equal(seen.closes, 1);

    group = pg_new(&SIMPLE, &play, 0, 3, &options, &err);
    assert_true(pg_abort(group, &late));
    assert_int_equal(seen.fails, 1);
    diary_is(&play, "close; abort: rank 0: too late; ");
    pg_close(group);
}

// Each fault alone, and its neighbour that is none.
static void faults_in_the_arguments_break_the_group(void **state) {
    (void)state;
    float x[9] = {0};
    const size_t most = SIZE_MAX / 16 / 3;
    const struct Case {
        Collective collective;
        const char *fault; // NULL: none
    } CASES[] = {
        {pg_broadcast(x, 1, PG_F32, 2), NULL},
        {pg_broadcast(x, 1, PG_F32, 3), "there is no such rank"},
        {pg_broadcast(x, 1, PG_F32, -1), "there is no such rank"},
        {pg_send(x, 1, PG_F32, 1), NULL},
        {pg_send(x, 1, PG_F32, 0), "a rank cannot send to itself"},
        {pg_recv(x, 1, PG_F32, 0), "a rank cannot send to itself"},
        {pg_recv(x, 1, PG_F32, 3), "there is no such rank"},
        {pg_reduce(x, 1, PG_F32, PG_SUM, 0), NULL},
        {pg_all_reduce(x, 1, PG_F64, PG_AVG), NULL},
        {pg_all_reduce(x, 1, PG_F32, PG_AVG), NULL},
        {pg_all_reduce(x, 1, PG_I32, PG_AVG), "avg is for F32 and F64"},
        {pg_all_reduce(x, 1, PG_I32, PG_MAX), NULL},
        {pg_all_reduce(x, 1, PG_BF16, PG_MIN), NULL},
        {pg_all_gather(x, x, most, PG_U8), NULL},
        {pg_all_gather(x, x, most + 1, PG_U8), "the size overflows"},
        {pg_all_reduce(NULL, 1, PG_F32, PG_SUM), "the send buffer is NULL"},
        {pg_all_reduce(NULL, 0, PG_F32, PG_SUM), NULL},
        {pg_all_gather(NULL, x, 1, PG_F32), "the send buffer is NULL"},
        {pg_all_gather(x, NULL, 1, PG_F32), "the receive buffer is NULL"},
        {pg_all_gather(NULL, NULL, 0, PG_F32), NULL},
        {pg_recv(NULL, 1, PG_F32, 1), "the receive buffer is NULL"},
        {pg_send(NULL, 1, PG_F32, 1), "the send buffer is NULL"},
        {pg_gather(x, NULL, 1, PG_F32, 1), NULL},
        {pg_gather(x, NULL, 1, PG_F32, 0), "the receive buffer is NULL"},
        {pg_scatter(NULL, x, 1, PG_F32, 1), NULL},
        {pg_scatter(NULL, x, 1, PG_F32, 0), "the send buffer is NULL"},
        {pg_reduce_scatter(NULL, x, 1, PG_F32, PG_SUM), "the send buffer is NULL"},
        {{.kind = (CollectiveKind)99}, "there is no such thing"},
        {{.kind = PG_BARRIER, .type = (PgType)99}, "there is no such thing"},
        {{.kind = PG_BARRIER, .op = (ReduceOp)99}, "there is no such thing"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, &SIMPLE, 3);
        assert_int_equal(pg_run(group, CASES[i].collective, &err), CASES[i].fault ? -1 : 0);
        if (CASES[i].fault) check_message(&err, CASES[i].fault);
        if (CASES[i].fault) assert_memory_equal(play.diary, "abort: rank 0", 13);
        assert_int_equal(pg_check_sound(group, &err), CASES[i].fault ? -1 : 0);
        assert_int_equal(pg_sequence(group), CASES[i].fault ? 0 : play.last.sequence);
        pg_close(group);
    }
}

static void a_monitored_barrier_has_its_own_timeout(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    for (int all = 0; all < 2; all++) {
        assert_int_equal(pg_monitored_barrier(group, 3, all, &err), 0);
        assert_int_equal(play.last.monitor, all ? MONITOR_ALL : MONITOR_FIRST);
        assert_true(play.last.timeout_s == 3);
        assert_true(play.last.deadline_ns - play.last.begin_ns == 3000000000ull);
    }
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    assert_int_equal(play.last.monitor, MONITOR_NONE);
    assert_int_equal(pg_monitored_barrier(NULL, 3, true, &err), 0);
    assert_int_equal(pg_monitored_barrier(group, NAN, true, &err), -1);
    assert_int_equal(pg_check_sound(group, &err), 0); // refused, not broken
    err = (Error){0};
    assert_int_equal(pg_monitored_barrier(group, 0, true, &err), -1);
    assert_string_equal(err.message, "Rank 0 timed out in monitoredBarrier after 0 ms.");
    pg_close(group);
}

// ---- the queue ----------------------------------------------------------------------------------

// At most PG_MAX_WORKS are outstanding; a work that was waited for makes room for the next.
static void the_pool_of_works_is_bounded(void **state) {
    (void)state;
    static PgWork *works[PG_MAX_WORKS];
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    for (int round = 0; round < 2; round++) {
        for (int w = 0; w < PG_MAX_WORKS; w++) {
            works[w] = pg_start(group, pg_barrier(), &err);
            CHECK_OK(works[w], err);
        }
        for (int w = 0; round == 0 && w < PG_MAX_WORKS; w++) {
            uint64_t begin_ns, end_ns;
            assert_int_equal(pg_work_wait(works[w], &begin_ns, &end_ns, &err), 0);
            assert_true(begin_ns > 0 && begin_ns <= end_ns);
        }
    }
    assert_int_equal(pg_work_wait(works[0], NULL, NULL, &err), 0);
    assert_non_null(pg_start(group, pg_barrier(), &err));
    assert_null(pg_start(group, pg_barrier(), &err));
    assert_string_equal(err.message, "rank 0: more than 1024 collectives are outstanding");
    assert_int_equal(pg_check_sound(group, &err), -1);
    pg_close(group);
}

// Calls that are queued behind one that fails have its error, and do not reach the backend; nor
// does a poll, before they are done.
static void calls_behind_a_failed_one_fail(void **state) {
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        Play play;
        PgWork *works[4];
        ProcessGroup *group = open_group(&play, queued ? &QUEUED : &SIMPLE, 3);
        Error err = {0};
        play.fails_in = 2;
        pthread_mutex_lock(&play.gate);
        for (int w = 0; w < 4; w++) CHECK_OK(works[w] = pg_start(group, pg_barrier(), &err), err);
        play.behind = works[3];
        pthread_mutex_unlock(&play.gate);
        for (int w = 0; w < 4; w++) {
            uint64_t begin_ns, end_ns;
            const int status = pg_work_wait(works[w], &begin_ns, &end_ns, &err);
            if (w > 0) assert_int_equal(status, -1);
            assert_true(begin_ns > 0);
            if (w >= 2) assert_true(end_ns == begin_ns); // it never ran
        }
        assert_string_equal(err.message, "a cable is loose");
        diary_is(&play, queued ? "issue; issue; issue; issue; run 1; run 2; abort: a cable is "
                                 "loose; "
                               : "run 1; run 2; abort: a cable is loose; ");
        pg_close(group);
    }
}

// The polls since the last call of this.
static int play_polls(Play *play) {
    pthread_mutex_lock(&play->mutex);
    const int polls = play->polls;
    play->polls = 0;
    pthread_mutex_unlock(&play->mutex);
    return polls;
}

// Of the group's communication thread. (OpenBLAS's threads spin for a while after the start.)
static uint64_t processor_ns(const ProcessGroup *group) {
    clockid_t clock;
    struct timespec now;
    assert_int_equal(pthread_getcpuclockid(group->thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// Its communication thread sleeps. Where it polls, that is ten times a second, and each millisecond
// with calls in flight.
static void an_idle_group_takes_no_processor(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, way ? &QUEUED : &SIMPLE, 3);
        play.holds = way == 2;
        PgWork *work = pg_start(group, pg_barrier(), &err);
        assert_int_equal(pg_work_wait(work, NULL, NULL, &err), 0);
        const uint64_t began = clock_ns(), before = processor_ns(group);
        play_polls(&play);
        nanosleep(&(struct timespec){.tv_nsec = 80000000}, NULL);
        const uint64_t ms = (clock_ns() - began) / 1000000;
        if (way < 2) assert_true(processor_ns(group) - before < 4000000);
        assert_in_range(play_polls(&play), 0, way == 2 ? ms + 2 : ms / 100 + 2);
        pthread_mutex_lock(&play.mutex);
        play.holds = false;
        pthread_mutex_unlock(&play.mutex);
        pg_close(group);
    }
}

// A backend that enqueues: each wait joins its call, which may still be in flight then.
static void the_device_ends_calls_that_are_in_flight(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    float x[4] = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    assert_int_equal(pg_run(group, pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_SUM), 0), &err), 0);
    assert_int_equal(play.joined, 1);
    PgWork *works[3];
    for (int w = 0; w < 3; w++) works[w] = pg_start(group, pg_barrier(), &err);
    for (int w = 0; w < 3; w++) {
        uint64_t begin_ns, end_ns;
        assert_int_equal(pg_work_wait(works[w], &begin_ns, &end_ns, &err), 0);
        assert_true(begin_ns > 0 && end_ns == 0); // the device still runs it
    }
    assert_int_equal(play.joined, 4);
    pg_close(group); // waits until nothing is in flight
    assert_int_equal(play.flying_count, 0);
}

// poll's failure breaks the group, even if nothing is issued; a wait returns it and joins nothing.
static void a_failure_of_the_device_breaks_the_group(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    pthread_mutex_lock(&play.mutex);
    play.holds = true;
    pthread_mutex_unlock(&play.mutex);
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    pthread_mutex_lock(&play.mutex);
    play.poll_fails = true;
    pthread_mutex_unlock(&play.mutex);
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && pg_check_sound(group, &err) == 0; i++) nanosleep(&pause, NULL);
    assert_string_equal(err.message, "the device is gone");
    err = (Error){0};
    assert_int_equal(pg_run(group, pg_barrier(), &err), -1);
    assert_string_equal(err.message, "the device is gone");
    assert_int_equal(play.joined, 1);
    pthread_mutex_lock(&play.mutex);
    play.flying_count = 0;
    pthread_mutex_unlock(&play.mutex);
    pg_close(group);
}

// ---- records ------------------------------------------------------------------------------------

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no %s in %s", part, text);
}

// Of buckets and other collectives, a trace has the bytes, the number and when it was ready.
static void a_trace_has_each_call(void **state) {
    for (int queued = 0; queued < 2; queued++) {
        Play play;
        Error err = {0};
        float x[6] = {0};
        Trace *trace = trace_open(0, "rank");
        ProcessGroup *group = open_group(&play, queued ? &QUEUED : &SIMPLE, 3);
        pg_set_trace(group, trace, trace_track(trace, "comm", 16));
        Collective sum = pg_all_reduce(x, 6, PG_F32, PG_SUM);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pg_run(group, pg_broadcast(x, 5, PG_F32, 0), &err), 0);
        assert_int_equal(pg_totals(group).bucket_ns, 0);
        const uint64_t before = clock_ns();
        assert_int_equal(pg_run(group, pg_of_bucket(sum, 3), &err), 0);
        if (!queued) assert_in_range(pg_totals(group).bucket_ns, 1, clock_ns() - before);
        pg_close(group);
        char *path = temp_folder_path(state, "trace.json"), text[4096];
        assert_int_equal(trace_write(trace, path, &err), 0);
        FILE *file = fopen(path, "r");
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        free(path);
        has(text, "\"broadcast\"");
        has(text, "\"all_reduce\"");
        has(text, "\"bytes\": 20");
        has(text, "\"bytes\": 24");
        has(text, "\"bucket\": 3");
        const char *ready = strstr(text, "bucket is ready");
        assert_true(ready && !strstr(ready + 1, "bucket is ready")); // one, of the bucket
        trace_close(trace);
    }
}

// ---- the end ------------------------------------------------------------------------------------

static int open_and_close_often(const char *unused) {
    (void)unused;
    for (int i = 0; i < 100; i++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, &SIMPLE, 3);
        if (pg_run(group, pg_barrier(), &err) != 0 || pg_write_flight(group, NULL, &err) != 0)
            return 1;
        pg_close(group);
        // Nor does one whose pipe cannot be made leave anything.
        const PgOptions options = {.timeout_s = TIMEOUT_S, .flight_pipe = "/dev/null/"};
        if (pg_new(&SIMPLE, &play, 0, 3, &options, &err)) return 1;
    }
    return 0;
}

// A group takes several hundred KiB, with its recorder; so does a copy of that.
static void a_closed_group_leaves_no_memory(void **state) {
    (void)state;
    if (UNDER_ASAN || UNDER_TSAN) skip(); // it keeps what is freed, and sees leaks itself
    assert_peak_below(8, open_and_close_often, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructors_fill_every_field),
        cmocka_unit_test(calls_are_numbered_and_have_a_deadline),
        cmocka_unit_test(a_single_rank_calls_nobody),
        cmocka_unit_test(the_first_failure_is_every_later_calls),
        cmocka_unit_test(faults_in_the_arguments_break_the_group),
        cmocka_unit_test(a_monitored_barrier_has_its_own_timeout),
        cmocka_unit_test(the_pool_of_works_is_bounded),
        cmocka_unit_test(calls_behind_a_failed_one_fail),
        cmocka_unit_test(an_idle_group_takes_no_processor),
        cmocka_unit_test(the_device_ends_calls_that_are_in_flight),
        cmocka_unit_test(a_failure_of_the_device_breaks_the_group),
        cmocka_unit_test_setup_teardown(a_trace_has_each_call, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(a_closed_group_leaves_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
