/* wait.c: how long this rank waits for the others, and what it says then.
 *
 * NCCL has no deadlines, and does not report a process of the same host that has died. So whatever
 * waits here polls three things: is it done, has the communicator failed (nccl_look), is the time
 * over. Four times a second it also looks into the store: there a rank that fails says why, and
 * every rank says which call it took up last, so that at the deadline the one that is behind can be
 * named. The store is only asked, never waited for; if it does not answer, it is not asked again,
 * and errors know less.
 */
#include <sched.h>
#include <stdarg.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "ddp/group/nccl/internal.h"

enum {
    LOOK_NS = 250 * 1000 * 1000,
    // A wait shorter than this never sleeps: the shortest sleep takes 60 us, and a call that is in
    // progress, as of a non-blocking communicator each is, hardly longer.
    SPIN_NS = 300 * 1000,
    LONGEST_SLEEP_NS = 1000 * 1000, // between two looks
    MESSAGE_MAX = 1000,
};

void nccl_wait_a_little(uint64_t start_ns) {
    uint64_t waited = clock_ns() - start_ns;
    if (waited < SPIN_NS) {
        sched_yield();
        return;
    }
    long sleep = waited / 8 < LONGEST_SLEEP_NS ? (long)(waited / 8) : LONGEST_SLEEP_NS;
    nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
}

// ---- the store ------------------------------------------------------------------------------

__attribute__((format(printf, 3, 4))) static const char *
make_key(const PgNccl *nccl, char key[NCCL_KEY_MAX], const char *format, ...) {
    char tail[48];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(tail, sizeof tail, format, arguments);
    va_end(arguments);
    snprintf(key, NCCL_KEY_MAX, "nccl/%s/%s", nccl->name, tail);
    return key;
}

static void say(PgNccl *nccl, const char *key, const char *text) {
    Error ignored = {0};
    if (nccl->store_lost) return;
    nccl->store_lost = store_set(nccl->place.store, key, text, strlen(text), &ignored) != 0;
}

// What another rank has said; false if nothing yet. (No value equals "-": this only reads.)
static bool hear(PgNccl *nccl, const char *key, char *text, size_t capacity) {
    Error ignored = {0};
    if (nccl->store_lost) return false;
    if (store_compare_set(nccl->place.store, key, "-", "-", text, capacity, &ignored) == 0)
        return text[0] != '\0';
    nccl->store_lost = true;
    return false;
}

static void tell_at(PgNccl *nccl) {
    char key[NCCL_KEY_MAX];
    if (strcmp(nccl->at, nccl->told) == 0) return;
    say(nccl, make_key(nccl, key, "at/%d", nccl->rank), nccl->at);
    memcpy(nccl->told, nccl->at, sizeof nccl->told);
}

void nccl_tell_closed(PgNccl *nccl) {
    char last[NCCL_AT_MAX];
    snprintf(last, sizeof last, "%.80s", nccl->at[0] ? nccl->at : "0 nothing");
    snprintf(nccl->at, sizeof nccl->at, "%.80s, and has closed its group", last);
    tell_at(nccl);
}

// The first failure stands.
void nccl_tell_failure(PgNccl *nccl, const char *message) {
    char key[NCCL_KEY_MAX], text[MESSAGE_MAX + 1], stands[MESSAGE_MAX + 1];
    Error ignored = {0};
    if (nccl->store_lost) return;
    snprintf(text, sizeof text, "%.*s", MESSAGE_MAX, message);
    (void)store_compare_set(nccl->place.store, make_key(nccl, key, "failure"), "", text, stands,
                            sizeof stands, &ignored);
}

int nccl_read_key(PgNccl *nccl, const char *key, const char *prefix, char *text, size_t capacity,
                  Error *err) {
    uint64_t start_ns = clock_ns();
    while (!hear(nccl, key, text, capacity) || strncmp(text, prefix, strlen(prefix)) != 0) {
        if (nccl->store_lost)
            return error_set(err, STATUS_FAILED, "rank %d: the store does not answer", nccl->rank);
        if (nccl_look(nccl, nccl->call, err) != 0) return -1;
        nccl_wait_a_little(start_ns);
    }
    return 0;
}

// ---- the deadline ---------------------------------------------------------------------------

// Has rank r not taken up the call? at: the last one it did, as text.
static bool is_missing(PgNccl *nccl, const PgCall *call, int r, char at[NCCL_AT_MAX]) {
    char key[NCCL_KEY_MAX];
    if (!hear(nccl, make_key(nccl, key, "at/%d", r), at, NCCL_AT_MAX)) strcpy(at, "0 nothing");
    if (pg_is_pairwise(call->operation)) return r == call->collective.root;
    return r != nccl->rank && strtoull(at, NULL, 10) < call->sequence;
}

static const char *describe_call(const PgCall *call, char text[NCCL_AT_MAX]) {
    char name[PG_DESCRIPTION_MAX];
    if (call->sequence > 0)
        snprintf(text, NCCL_AT_MAX, "collective %ju %s", (uintmax_t)call->sequence,
                 pg_describe(call->operation, &call->collective, name));
    else if (pg_is_pairwise(call->operation))
        snprintf(text, NCCL_AT_MAX, "%s", pg_describe(call->operation, &call->collective, name));
    else
        snprintf(text, NCCL_AT_MAX, "joining or leaving the group");
    return text;
}

// "rank 0: collective 18 all_reduce(F32, 10, sum): rank 1 did not arrive within 30.0 s; rank 1 last
// called 17 barrier"
static int fail_late(PgNccl *nccl, const PgCall *call, Error *err) {
    char names[160] = "", details[400] = "", at[NCCL_AT_MAX], rank[PG_RANK_NAME_MAX];
    int missing = 0;
    tell_at(nccl);
    for (int r = 0; r < nccl->world; r++) {
        if (!is_missing(nccl, call, r, at) || (missing && call->monitor == MONITOR_FIRST)) continue;
        const char *name = pg_rank_name(call->global, r, rank), *comma = missing++ ? ", " : "";
        format_append(names, sizeof names, "%s%s", comma, name);
        format_append(details, sizeof details, "%srank %s last called %s", comma, name, at);
    }
    char what[NCCL_AT_MAX];
    describe_call(call, what);
    if (missing == 0)
        return error_set(err, STATUS_FAILED,
                         "rank %d: %s: not done within %.1f s, though %s: is the network or a GPU "
                         "at a standstill?",
                         nccl->rank, what, call->timeout_s,
                         nccl->store_lost ? "nobody is known to be missing"
                                          : "all ranks called it");
    if (call->monitor == MONITOR_NONE)
        return error_set(err, STATUS_FAILED,
                         "rank %d: %s: rank %s did not arrive within %.1f s; %s", nccl->rank, what,
                         names, call->timeout_s, details);
    return error_set(
        err, STATUS_FAILED, "rank %d: %s: Rank%s %s failed to pass monitoredBarrier in %.0f ms; %s",
        nccl->rank, what, missing == 1 ? "" : "s", names, call->timeout_s * 1e3, details);
}

// ---- looking --------------------------------------------------------------------------------

// Has this rank's owner broken the group, or another rank?
static int look_for_failure(PgNccl *nccl, Error *err) {
    char key[NCCL_KEY_MAX], text[MESSAGE_MAX + 1];
    pthread_mutex_lock(&nccl->mutex);
    int status = nccl->failed ? error_set(err, STATUS_FAILED, "%s", nccl->message) : 0;
    pthread_mutex_unlock(&nccl->mutex);
    if (status || clock_ns() - nccl->looked_ns < LOOK_NS) return status;
    nccl->looked_ns = clock_ns();
    tell_at(nccl);
    if (!hear(nccl, make_key(nccl, key, "failure"), text, sizeof text)) return 0;
    return error_set(err, STATUS_FAILED, "%s", text);
}

// A failure that another rank knows more about: it may be just about to say so.
static int fail_asynchronously(PgNccl *nccl, const PgCall *call, ncclResult_t result, Error *err) {
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = LOOK_NS};
    char what[NCCL_AT_MAX];
    nanosleep(&pause, NULL);
    nccl->looked_ns = 0;
    if (look_for_failure(nccl, err) != 0) return -1;
    return error_set(err, STATUS_FAILED, "rank %d: %s: %s: %s", nccl->rank,
                     call ? describe_call(call, what) : "between collectives",
                     ncclGetErrorString(result), ncclGetLastError(nccl->communicator));
}

int nccl_look(PgNccl *nccl, const PgCall *call, Error *err) {
    if (look_for_failure(nccl, err) != 0) return -1;
    ncclResult_t state = ncclSuccess, asked = ncclSuccess;
    if (nccl->communicator) asked = ncclCommGetAsyncError(nccl->communicator, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress)
        return fail_asynchronously(nccl, call, state, err);
    return call && clock_ns() >= call->deadline_ns ? fail_late(nccl, call, err) : 0;
}

// ---- waiting --------------------------------------------------------------------------------

int nccl_await_event(PgNccl *nccl, cudaEvent_t event, Error *err) {
    uint64_t start_ns = clock_ns();
    for (;;) {
        cudaError_t status = cudaEventQuery(event);
        if (status == cudaSuccess) return 0;
        if (status != cudaErrorNotReady)
            return error_set(err, STATUS_FAILED, "rank %d: %s", nccl->rank,
                             cudaGetErrorString(status));
        if (nccl_look(nccl, nccl->call, err) != 0) return -1;
        nccl_wait_a_little(start_ns);
    }
}

int nccl_await_stream(PgNccl *nccl, Error *err) {
    CUDA(cudaEventRecord(nccl->staged, nccl->stream));
    return nccl_await_event(nccl, nccl->staged, err);
}

// ---- taking up a call -----------------------------------------------------------------------

// Shows the others what this rank calls, and looks at what they do. There are two keys for each
// rank, used in turn: that of call n is written again for n + 2, when this rank has seen all at
// n + 1, and so all have read n's.
static int compare(PgNccl *nccl, const PgCall *call, Error *err) {
    PgFingerprint own = pg_fingerprint(call), first = own, other = own;
    char key[NCCL_KEY_MAX], number[24], text[128];
    unsigned turn = (unsigned)(call->sequence & 1);
    snprintf(number, sizeof number, "%ju ", (uintmax_t)call->sequence);
    snprintf(text, sizeof text, "%s%ju %d %d %d %d", number, (uintmax_t)own.count, own.operation,
             own.type, own.op, own.root);
    say(nccl, make_key(nccl, key, "call/%u/%d", turn, nccl->rank), text);
    for (int r = 0; r < nccl->world; r++) {
        uintmax_t count;
        make_key(nccl, key, "call/%u/%d", turn, r);
        if (nccl_read_key(nccl, key, number, text, sizeof text, err) != 0) return -1;
        if (sscanf(text + strlen(number), "%ju %d %d %d %d", &count, &other.operation, &other.type,
                   &other.op, &other.root) != 5)
            return error_set(err, STATUS_FAILED, "rank %d left '%s' in the store", r, text);
        other.count = count;
        if (r == 0) first = other;
        if (pg_fingerprint_compare(call, &first, &other, r, err) != 0) return -1;
    }
    return 0;
}

int nccl_arrive(PgNccl *nccl, const PgCall *call, Error *err) {
    char name[PG_DESCRIPTION_MAX];
    nccl->call = call;
    if (call->sequence == 0) {
        char last[24];
        snprintf(last, sizeof last, "%ju", (uintmax_t)strtoull(nccl->at, NULL, 10));
        snprintf(nccl->at, sizeof nccl->at, "%s %s", last,
                 pg_describe(call->operation, &call->collective, name));
    } else {
        snprintf(nccl->at, sizeof nccl->at, "%ju %s", (uintmax_t)call->sequence,
                 pg_describe(call->operation, &call->collective, name));
    }
    if (nccl_look(nccl, call, err) != 0) return -1;
    return nccl->detail && call->sequence > 0 ? compare(nccl, call, err) : 0;
}
