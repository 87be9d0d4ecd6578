/* shm_wait.c: how ranks of an shm group wait for each other, and the errors of waits.
 *
 * A barrier is one counter per rank, on a cache line of its own: a rank increments its own, then
 * waits until each of the others has reached the same value. Each counter has one writer, so no
 * lock is needed, and at the deadline the counters identify the missing ranks.
 *
 * Ten times a second a waiting rank checks whether a rank that it waits for is lost: its process
 * has died (its pid is free or a zombie's) or has closed the group. Such a rank may have arrived
 * just before, so its counter is read again after the check.
 *
 * The first rank that fails writes the error into its slot and sets `aborted`: all other waits end,
 * with the same error.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/group/message.h"
#include "ddp/group/shm/shm_internal.h"

enum { LOST_CHECK_NS = 100 * 1000 * 1000 };

static RankSlot *slot(const PgShm *shm, int rank) {
    return &shm->control->slots[rank];
}

static bool reached(const SyncWord *word, uint32_t target) {
    return (int32_t)(sync_load(word) - target) >= 0;
}

// ---- missing ranks -----------------------------------------------------------------------------

// A wait in progress: for one word of one peer, or (peer < 0) for all ranks at a barrier.
typedef struct ShmWait {
    int peer;
    const SyncWord *word;
    uint32_t target;
} ShmWait;

static bool is_missing(const PgShm *shm, const ShmWait *wait, int rank) {
    if (wait->peer < 0) return !reached(&slot(shm, rank)->arrived, wait->target);
    return rank == wait->peer && !reached(wait->word, wait->target);
}

// Whether the process has ended, or is a zombie that its parent has not reaped. In /proc/PID/stat
// the state follows the name, which is in parentheses and may contain some.
static bool process_gone(int pid) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    ssize_t length = read(fd, line, sizeof line - 1);
    bool no_process = length < 0 && errno == ESRCH;
    close(fd);
    line[length > 0 ? length : 0] = '\0';
    const char *end = strrchr(line, ')');
    return no_process || (end && (strncmp(end, ") Z", 3) == 0 || strncmp(end, ") X", 3) == 0));
}

static bool is_closed(const PgShm *shm, int rank) {
    return sync_load(&slot(shm, rank)->presence) == RANK_CLOSED;
}

static bool is_gone(const PgShm *shm, int rank) {
    int pid = (int)sync_load(&slot(shm, rank)->pid);
    return !shm->threads && pid != 0 && process_gone(pid);
}

// Whether this rank will never arrive. The order matters: presence and process first, then the
// counter again.
static bool is_lost(const PgShm *shm, const ShmWait *wait, int rank) {
    return (is_closed(shm, rank) || is_gone(shm, rank)) && is_missing(shm, wait, rank);
}

// ---- errors ------------------------------------------------------------------------------------

static void add_rank_state(PgMessage message, const PgShm *shm, int rank) {
    uint32_t finished = sync_load(&slot(shm, rank)->finished);
    char name[PG_RANK_NAME_MAX];
    format_append(message, PG_MESSAGE_MAX, "rank %s", pg_rank_name(shm->call->global, rank, name));
    if (is_closed(shm, rank))
        format_append(message, PG_MESSAGE_MAX, " has closed its group;");
    else if (sync_load(&slot(shm, rank)->presence) == RANK_ABSENT)
        format_append(message, PG_MESSAGE_MAX, " never joined;");
    else if (is_gone(shm, rank))
        format_append(message, PG_MESSAGE_MAX, " (pid %d) is gone;",
                      (int)sync_load(&slot(shm, rank)->pid));
    if (finished == 0)
        format_append(message, PG_MESSAGE_MAX, " has finished no collective");
    else
        format_append(message, PG_MESSAGE_MAX, " last finished %u %s", finished,
                      pg_operation_name((int)sync_load(&slot(shm, rank)->finished_operation)));
}

int shm_check_abort(PgShm *shm, Error *err) {
    uint32_t who = sync_load(&shm->control->aborted);
    if (who == 0) return 0;
    return error_set(err, STATUS_FAILED, "%s", slot(shm, (int)who - 1)->failure);
}

// A slot's message has one writer, its rank, and is not modified while `aborted` names it. Of ranks
// that fail concurrently each writes its own, and one becomes the group's.
void shm_abort(void *state, const char *message) {
    PgShm *shm = state;
    SyncWord *aborted = &shm->control->aborted;
    if (sync_load(aborted) != 0) return;
    snprintf(slot(shm, shm->rank)->failure, FAILURE_MAX, "%s", message);
    if (!sync_claim(aborted, 0, (uint32_t)shm->rank + 1)) return;
    for (int r = 0; r < shm->world; r++) sync_wake(&slot(shm, r)->arrived);
}

// Sets the error of a failed wait: because of lost ranks, which it names, or at the deadline, where
// it names all missing ranks. If another rank has aborted meanwhile, its error is kept: ranks
// missing here may only have left a broken group.
static int report_missing(PgShm *shm, const ShmWait *wait, bool lost_only, Error *err) {
    PgMessage message = "";
    const char *separator = "";
    PgLate late = {.count = 0};
    if (shm->call->sequence == 0 && shm->call->operation == PG_BARRIER)
        format_append(message, PG_MESSAGE_MAX, "joining a group of %d", shm->world);
    else
        pg_message_add_call(message, shm->call);
    format_append(message, PG_MESSAGE_MAX, ": ");
    for (int r = 0; r < shm->world && !lost_only; r++)
        if (is_missing(shm, wait, r)) (void)pg_late_add(&late, shm->call, r);
    if (!lost_only) pg_message_add_late(message, shm->call, &late);
    for (int r = 0; r < shm->world; r++) {
        if (lost_only ? !is_lost(shm, wait, r) : !is_missing(shm, wait, r)) continue;
        format_append(message, PG_MESSAGE_MAX, "%s", separator);
        add_rank_state(message, shm, r);
        separator = ", ";
    }
    shm_abort(shm, message);
    return shm_check_abort(shm, err);
}

// ---- waiting -----------------------------------------------------------------------------------

// Waits until `word` reaches target. `wait`: the ranks to check for losses meanwhile.
static int await(PgShm *shm, const ShmWait *wait, SyncWord *word, uint32_t target, Error *err) {
    while (!reached(word, target)) {
        uint64_t deadline = shm->call->deadline_ns, next_check = clock_ns() + LOST_CHECK_NS;
        SyncResult result = sync_wait(word, target, &shm->control->aborted,
                                      next_check < deadline ? next_check : deadline, shm->spins);
        if (result == SYNC_DONE) return 0;
        if (result == SYNC_ABORTED) return shm_check_abort(shm, err);
        for (int r = 0; r < shm->world; r++)
            if (r != shm->rank && is_lost(shm, wait, r))
                return report_missing(shm, wait, true, err);
        if (clock_ns() >= deadline && !reached(word, target))
            return report_missing(shm, wait, false, err);
    }
    return 0;
}

int shm_await(PgShm *shm, int peer, SyncWord *word, uint32_t target, Error *err) {
    ShmWait wait = {.peer = peer, .word = word, .target = target};
    return await(shm, &wait, word, target, err);
}

int shm_barrier(PgShm *shm, Error *err) {
    uint32_t target = ++shm->barriers;
    ShmWait wait = {.peer = -1, .word = NULL, .target = target};
    sync_store(&slot(shm, shm->rank)->arrived, target);
    for (int r = 0; r < shm->world; r++)
        if (r != shm->rank && await(shm, &wait, &slot(shm, r)->arrived, target, err) != 0)
            return -1;
    return 0;
}

// ---- fingerprints ------------------------------------------------------------------------------

void shm_enter(PgShm *shm, const PgCall *call) {
    shm->call = call;
    shm->calls++;
}

ShmFingerprint *shm_fingerprint(const PgShm *shm, int rank) {
    return &slot(shm, rank)->fingerprint[shm->calls & 1];
}

int shm_begin(PgShm *shm, uint64_t allocation, uint64_t offset, bool *direct, Error *err) {
    ShmFingerprint *own = shm_fingerprint(shm, shm->rank);
    own->call = pg_fingerprint(shm->call);
    own->allocation = allocation;
    own->offset = offset;
    if (shm_check_abort(shm, err) != 0 || shm_barrier(shm, err) != 0) return -1;
    *direct = allocation != 0;
    for (int r = 0; r < shm->world; r++) {
        const ShmFingerprint *f = shm_fingerprint(shm, r), *first = shm_fingerprint(shm, 0);
        if (pg_fingerprint_compare(shm->call, &first->call, &f->call, r, err) != 0) return -1;
        *direct = *direct && f->allocation == allocation && f->offset == offset;
    }
    return 0;
}

void shm_finish(PgShm *shm) {
    sync_store(&slot(shm, shm->rank)->finished_operation, (uint32_t)shm->call->operation);
    sync_store(&slot(shm, shm->rank)->finished, (uint32_t)shm->call->sequence);
}
