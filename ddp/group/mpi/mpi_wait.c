/* mpi_wait.c: how ranks of an mpi group wait for each other, and the errors of waits.
 *
 * MPI has no deadlines and does not report a dead rank. So every wait is a loop: poll MPI for
 * completion, check for another rank's failure message, check the clock, sleep. Each poll also
 * makes MPI progress this rank's messages.
 */
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/buffer.h"
#include "ddp/group/group_internal.h"
#include "ddp/group/message.h"
#include "ddp/group/mpi/mpi_internal.h"

enum {
    NAP_NS = 50 * 1000,
    // Largest message: well below MPI's limit of INT_MAX elements.
    PIECE_BYTES = 8 << 20,
    TELL_NS = 200 * 1000 * 1000, // how long a failing rank tries to deliver its error
};

void mpi_nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

// ---- errors ------------------------------------------------------------------------------------

// Whether a message to or from the rank is in flight.
static bool is_awaited(const PgMpi *mpi, int rank) {
    for (int i = 0; i < mpi->count; i++) {
        int done = 1;
        MPI_Status status;
        if (mpi->peers[i] == rank) MPI_Request_get_status(mpi->requests[i], &done, &status);
        if (!done) return true;
    }
    return false;
}

static void add_rank_state(PgMessage message, const PgMpi *mpi, int rank) {
    const PgFingerprint *last = &mpi->headers[rank].call;
    char name[PG_RANK_NAME_MAX];
    format_append(message, PG_MESSAGE_MAX, "rank %s", pg_rank_name(mpi->call->global, rank, name));
    if (last->sequence == 0)
        format_append(message, PG_MESSAGE_MAX, " has begun no collective");
    else if (last->sequence == mpi->call->sequence)
        format_append(message, PG_MESSAGE_MAX, " had begun it");
    else
        format_append(message, PG_MESSAGE_MAX, " last began %ju %s", (uintmax_t)last->sequence,
                      pg_operation_name(last->operation));
}

// "collective 18 all_reduce(F32, 10, sum): rank 1 did not arrive within 30.0 s; rank 1 last began
// 17 barrier"
static int fail_late(PgMpi *mpi, Error *err) {
    PgMessage message = "", states = "";
    PgLate late = {.count = 0};
    for (int r = 0; r < mpi->world; r++) {
        if (!is_awaited(mpi, r) || !pg_late_add(&late, mpi->call, r)) continue;
        format_append(states, PG_MESSAGE_MAX, "%s", late.count > 1 ? ", " : "");
        add_rank_state(states, mpi, r);
    }
    pg_message_add_call(message, mpi->call);
    format_append(message, PG_MESSAGE_MAX, ": ");
    pg_message_add_late(message, mpi->call, &late);
    format_append(message, PG_MESSAGE_MAX, "%.500s", states);
    return error_set(err, STATUS_FAILED, "%s", message);
}

// ---- failures ----------------------------------------------------------------------------------

// Marks the group as broken; the first error is kept. Returns false if it was broken already.
static bool mark_failed(PgMpi *mpi, const char *message) {
    pthread_mutex_lock(&mpi->mutex);
    bool first = !mpi->failed;
    if (first) snprintf(mpi->message, sizeof mpi->message, "%s", message);
    mpi->failed = true;
    pthread_mutex_unlock(&mpi->mutex);
    return first;
}

// Appends ". Rank 1 itself waits for rank 2" if this rank has messages in flight.
static void add_awaited(PgMessage message, const PgMpi *mpi) {
    char name[PG_RANK_NAME_MAX];
    const char *separator = "";
    for (int r = 0; r < mpi->world; r++) {
        if (!is_awaited(mpi, r)) continue;
        if (!*separator)
            format_append(message, PG_MESSAGE_MAX, ". Rank %s itself waits for rank ",
                          pg_rank_name(mpi->call->global, mpi->rank, name));
        format_append(message, PG_MESSAGE_MAX, "%s%s", separator,
                      pg_rank_name(mpi->call->global, r, name));
        separator = ", ";
    }
}

// Receives another rank's error, if there is one, as this rank's own. The sender may blame this
// rank, which may be waiting itself: so it appends for which ranks.
static void receive_failure(PgMpi *mpi) {
    int there = 0;
    MPI_Status status;
    char received[MPI_FAILURE_MAX];
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILURE, mpi->comm, &there, &status) || !there) return;
    if (MPI_Recv(received, sizeof received, MPI_CHAR, status.MPI_SOURCE, TAG_FAILURE, mpi->comm,
                 &status) != MPI_SUCCESS)
        return;
    PgMessage message = "";
    format_append(message, PG_MESSAGE_MAX, "%s", received);
    add_awaited(message, mpi);
    (void)mark_failed(mpi, message);
}

void mpi_tell_failure(PgMpi *mpi, const char *message) {
    int count = 0, done = 0;
    uint64_t end_ns = clock_ns() + TELL_NS;
    if (!mark_failed(mpi, message)) return; // another rank has sent its error to all
    // Never freed while in flight, as the state of a broken group.
    MPI_Request *requests = memory_zalloc((size_t)mpi->world * sizeof *requests);
    for (int r = 0; r < mpi->world; r++) {
        if (r == mpi->rank) continue;
        if (MPI_Isend(mpi->message, MPI_FAILURE_MAX, MPI_CHAR, r, TAG_FAILURE, mpi->comm,
                      &requests[count]) == MPI_SUCCESS)
            count++;
    }
    while (!done && clock_ns() < end_ns) {
        if (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
        if (!done) mpi_nap();
    }
    if (done) free(requests);
}

int mpi_check(PgMpi *mpi, Error *err) {
    receive_failure(mpi);
    pthread_mutex_lock(&mpi->mutex);
    int status = mpi->failed ? error_set(err, STATUS_FAILED, "%s", mpi->message) : 0;
    pthread_mutex_unlock(&mpi->mutex);
    if (status) return -1;
    return clock_ns() >= mpi->call->deadline_ns ? fail_late(mpi, err) : 0;
}

// ---- messages ----------------------------------------------------------------------------------

int mpi_add_requests(PgMpi *mpi, int count, int peer) {
    const int first = mpi->count;
    mpi->count += count;
    if (mpi->count > mpi->room) {
        mpi->room = mpi->count;
        mpi->requests = memory_grow(mpi->requests, (size_t)mpi->room, sizeof *mpi->requests);
        mpi->peers = memory_grow(mpi->peers, (size_t)mpi->room, sizeof *mpi->peers);
    }
    for (int i = first; i < mpi->count; i++) {
        mpi->requests[i] = MPI_REQUEST_NULL;
        mpi->peers[i] = peer;
    }
    return first;
}

static int piece_of(size_t bytes, size_t done) {
    return (int)(bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);
}

int mpi_start_send(PgMpi *mpi, int request, const void *data, int bytes, int tag, Error *err) {
    return MPI(MPI_Isend(data, bytes, MPI_BYTE, mpi->peers[request], tag, mpi->comm,
                         &mpi->requests[request]),
               err);
}

int mpi_start_receive(PgMpi *mpi, int request, void *data, int bytes, int tag, Error *err) {
    return MPI(MPI_Irecv(data, bytes, MPI_BYTE, mpi->peers[request], tag, mpi->comm,
                         &mpi->requests[request]),
               err);
}

int mpi_post_send(PgMpi *mpi, const void *data, size_t bytes, int peer, int tag, Error *err) {
    for (size_t done = 0; done < bytes; done += PIECE_BYTES)
        if (mpi_start_send(mpi, mpi_add_requests(mpi, 1, peer), (const char *)data + done,
                           piece_of(bytes, done), tag, err) != 0)
            return -1;
    return 0;
}

int mpi_post_receive(PgMpi *mpi, void *data, size_t bytes, int peer, int tag, Error *err) {
    for (size_t done = 0; done < bytes; done += PIECE_BYTES)
        if (mpi_start_receive(mpi, mpi_add_requests(mpi, 1, peer), (char *)data + done,
                              piece_of(bytes, done), tag, err) != 0)
            return -1;
    return 0;
}

// After a failed check MPI is polled once more: the messages may have completed between the poll
// before and the check, sent by a peer that has left the collective and then failed.
int mpi_wait(PgMpi *mpi, Error *err) {
    Error failure = {0};
    for (;;) {
        int done = 0;
        if (MPI(MPI_Testall(mpi->count, mpi->requests, &done, MPI_STATUSES_IGNORE), err) != 0)
            return -1;
        if (done) break;
        if (pg_copy_error(&failure, err) != 0) return -1;
        if (mpi_check(mpi, &failure) == 0) mpi_nap();
    }
    mpi->count = 0;
    return 0;
}

// ---- the begin of a collective -----------------------------------------------------------------

int mpi_swap(PgMpi *mpi, void *entries, size_t bytes, int count, int tag, Error *err) {
    const int first = mpi->rank / count * count;
    const void *mine = buffer_at(entries, (size_t)(mpi->rank - first), bytes);
    for (int r = first; r < first + count; r++) {
        void *theirs = buffer_at(entries, (size_t)(r - first), bytes);
        if (r == mpi->rank) continue;
        if (mpi_post_receive(mpi, theirs, bytes, r, tag, err) != 0 ||
            mpi_post_send(mpi, mine, bytes, r, tag, err) != 0)
            return -1;
    }
    return mpi_wait(mpi, err);
}

int mpi_meet(PgMpi *mpi, uint64_t allocation, uint64_t offset, bool *direct, Error *err) {
    mpi->headers[mpi->rank] = (MpiHeader){.call = pg_fingerprint(mpi->call),
                                          .allocation = allocation,
                                          .offset = offset,
                                          .fast = mpi->fast};
    if (mpi_swap(mpi, mpi->headers, sizeof *mpi->headers, mpi->world, TAG_HEADER, err) != 0)
        return -1;
    *direct = allocation != 0;
    for (int r = 0; r < mpi->world; r++) {
        const MpiHeader *header = &mpi->headers[r], *first = &mpi->headers[0];
        if (pg_fingerprint_compare(mpi->call, &first->call, &header->call, r, err) != 0) return -1;
        if (first->fast != header->fast)
            return error_set(err, STATUS_USAGE, "rank 0 runs %s fast sums, and rank %d %s",
                             first->fast ? "with" : "without", r,
                             header->fast ? "with them" : "without");
        *direct = *direct && header->allocation == allocation && header->offset == offset;
    }
    return 0;
}
