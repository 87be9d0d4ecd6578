/* nccl_wait.c: how long this rank waits for the others, and the errors of waits.
 *
 * NCCL has no deadlines and does not report a dead process of the same host. So every wait polls:
 * completion, the communicator's error state (nccl_check), the clock. Four times a second it also
 * polls the store, which holds the first failing rank's error, and each rank's last started call,
 * from which the error at a deadline names the late ranks. The store is polled, never waited for;
 * once it fails to answer it is not polled again, and errors have less detail.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/sync.h"
#include "ddp/group/message.h"
#include "ddp/group/nccl/nccl_internal.h"

enum {
    STORE_POLL_NS = 250 * 1000 * 1000,
    MESSAGE_MAX = 1000,
};

// ---- the store ---------------------------------------------------------------------------------

static void say(PgNccl *nccl, const char *key, const char *text) {
    Error ignored = {0};
    if (nccl->store_lost) return;
    nccl->store_lost = store_set(nccl->endpoint.store, key, text, strlen(text), &ignored) != 0;
}

// Reads a key; false if it is not set. (compare_set with a value that never occurs, "-", only
// reads.)
static bool hear(PgNccl *nccl, const char *key, char *text, size_t capacity) {
    Error ignored = {0};
    if (nccl->store_lost) return false;
    if (store_compare_set(nccl->endpoint.store, key, "-", "-", text, capacity, &ignored) == 0)
        return text[0] != '\0';
    nccl->store_lost = true;
    return false;
}

static void tell_at(PgNccl *nccl) {
    char key[NCCL_KEY_MAX];
    if (strcmp(nccl->at, nccl->published) == 0) return;
    snprintf(key, sizeof key, "at/%d", nccl->rank);
    say(nccl, key, nccl->at);
    memcpy(nccl->published, nccl->at, sizeof nccl->published);
}

void nccl_tell_closed(PgNccl *nccl) {
    char last[NCCL_AT_MAX];
    snprintf(last, sizeof last, "%.80s", nccl->at[0] ? nccl->at : "0 nothing");
    snprintf(nccl->at, sizeof nccl->at, "%.80s, and has closed its group", last);
    tell_at(nccl);
}

// Keeps the first failure.
void nccl_tell_failure(PgNccl *nccl, const char *message) {
    char text[MESSAGE_MAX + 1], stands[MESSAGE_MAX + 1];
    Error ignored = {0};
    if (nccl->store_lost) return;
    snprintf(text, sizeof text, "%.*s", MESSAGE_MAX, message);
    (void)store_compare_set(nccl->endpoint.store, "failure", "", text, stands, sizeof stands,
                            &ignored);
}

int nccl_read_key(PgNccl *nccl, const char *key, const char *prefix, char *text, size_t capacity,
                  Error *err) {
    uint64_t start_ns = clock_ns();
    while (!hear(nccl, key, text, capacity) || strncmp(text, prefix, strlen(prefix)) != 0) {
        if (nccl->store_lost)
            return error_set(err, STATUS_FAILED, "rank %d: the store does not answer", nccl->rank);
        if (nccl_check(nccl, nccl->call, err) != 0) return -1;
        sync_back_off(start_ns);
    }
    return 0;
}

// ---- the deadline ------------------------------------------------------------------------------

// Whether rank r has not started the call. at: the last call that it started, as text.
static bool is_missing(PgNccl *nccl, const PgCall *call, int r, char at[NCCL_AT_MAX]) {
    char key[NCCL_KEY_MAX];
    snprintf(key, sizeof key, "at/%d", r);
    if (!hear(nccl, key, at, NCCL_AT_MAX)) strcpy(at, "0 nothing");
    if (pg_is_pairwise(call->operation)) return r == call->collective.root;
    return r != nccl->rank && strtoull(at, NULL, 10) < call->sequence;
}

static void add_call(PgMessage message, const PgCall *call) {
    if (call->sequence == 0 && !pg_is_pairwise(call->operation))
        format_append(message, PG_MESSAGE_MAX, "joining or leaving the group");
    else
        pg_message_add_call(message, call);
}

// "rank 0: collective 18 all_reduce(F32, 10, sum): rank 1 did not arrive within 30.0 s; rank 1 last
// called 17 barrier"
static int fail_late(PgNccl *nccl, const PgCall *call, Error *err) {
    PgMessage message = "", details = "";
    PgLate late = {.count = 0};
    char at[NCCL_AT_MAX], name[PG_RANK_NAME_MAX];
    tell_at(nccl);
    for (int r = 0; r < nccl->world; r++) {
        if (!is_missing(nccl, call, r, at) || !pg_late_add(&late, call, r)) continue;
        format_append(details, sizeof details, "%srank %s last called %s",
                      late.count > 1 ? ", " : "", pg_rank_name(call->global, r, name), at);
    }
    format_append(message, PG_MESSAGE_MAX, "rank %d: ", nccl->rank);
    add_call(message, call);
    format_append(message, PG_MESSAGE_MAX, ": ");
    if (late.count == 0)
        return error_set(err, STATUS_FAILED,
                         "%snot done within %.1f s, though %s: is the network or a GPU at a "
                         "standstill?",
                         message, call->timeout_s,
                         nccl->store_lost ? "no rank is known to be missing"
                                          : "all ranks called it");
    pg_message_add_late(message, call, &late);
    return error_set(err, STATUS_FAILED, "%s%.400s", message, details);
}

// ---- failures ----------------------------------------------------------------------------------

// Fails if the owner or another rank has broken the group.
static int poll_failure(PgNccl *nccl, Error *err) {
    char text[MESSAGE_MAX + 1];
    pthread_mutex_lock(&nccl->mutex);
    int status = nccl->failed ? error_set(err, STATUS_FAILED, "%s", nccl->message) : 0;
    pthread_mutex_unlock(&nccl->mutex);
    if (status || clock_ns() - nccl->polled_ns < STORE_POLL_NS) return status;
    nccl->polled_ns = clock_ns();
    tell_at(nccl);
    if (!hear(nccl, "failure", text, sizeof text)) return 0;
    return error_set(err, STATUS_FAILED, "%s", text);
}

// An asynchronous error of NCCL. Waits first for another rank's error, which may name the cause.
static int fail_asynchronously(PgNccl *nccl, const PgCall *call, ncclResult_t result, Error *err) {
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = STORE_POLL_NS};
    PgMessage what = "";
    nanosleep(&pause, NULL);
    nccl->polled_ns = 0;
    if (poll_failure(nccl, err) != 0) return -1;
    if (call) add_call(what, call);
    return error_set(err, STATUS_FAILED, "rank %d: %s: %s: %s", nccl->rank,
                     call ? what : "between collectives", ncclGetErrorString(result),
                     ncclGetLastError(nccl->communicator));
}

int nccl_check(PgNccl *nccl, const PgCall *call, Error *err) {
    if (poll_failure(nccl, err) != 0) return -1;
    ncclResult_t state = ncclSuccess, asked = ncclSuccess;
    if (nccl->communicator) asked = ncclCommGetAsyncError(nccl->communicator, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress)
        return fail_asynchronously(nccl, call, state, err);
    return call && clock_ns() >= call->deadline_ns ? fail_late(nccl, call, err) : 0;
}

// ---- waiting -----------------------------------------------------------------------------------

int nccl_await_event(PgNccl *nccl, cudaEvent_t event, Error *err) {
    uint64_t start_ns = clock_ns();
    for (;;) {
        cudaError_t status = cudaEventQuery(event);
        if (status == cudaSuccess) return 0;
        if (status != cudaErrorNotReady)
            return error_set(err, STATUS_FAILED, "rank %d: %s", nccl->rank,
                             cudaGetErrorString(status));
        if (nccl_check(nccl, nccl->call, err) != 0) return -1;
        sync_back_off(start_ns);
    }
}

int nccl_await_stream(PgNccl *nccl, Error *err) {
    CUDA(cudaEventRecord(nccl->staged, nccl->stream));
    return nccl_await_event(nccl, nccl->staged, err);
}

// ---- the start of a call -----------------------------------------------------------------------

// Publishes this rank's call and compares it with the other ranks'. Double-buffered, two keys per
// rank: call n + 2 overwrites the key of call n. By then this rank has read all keys of n + 1,
// which their ranks published after they had read all keys of n.
static int compare(PgNccl *nccl, const PgCall *call, Error *err) {
    PgFingerprint own = pg_fingerprint(call), first = own, other = own;
    char key[NCCL_KEY_MAX], number[24], text[128];
    unsigned turn = (unsigned)(call->sequence & 1);
    snprintf(number, sizeof number, "%ju ", (uintmax_t)call->sequence);
    snprintf(text, sizeof text, "%s%ju %d %d %d %d", number, (uintmax_t)own.count, own.operation,
             own.type, own.op, own.root);
    snprintf(key, sizeof key, "call/%u/%d", turn, nccl->rank);
    say(nccl, key, text);
    for (int r = 0; r < nccl->world; r++) {
        uintmax_t count;
        snprintf(key, sizeof key, "call/%u/%d", turn, r);
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
    if (nccl_check(nccl, call, err) != 0) return -1;
    return nccl->detail && call->sequence > 0 ? compare(nccl, call, err) : 0;
}
