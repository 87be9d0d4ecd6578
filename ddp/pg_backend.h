/* pg_backend.h: what a transport gives to a ProcessGroup, and what both sides know about
 * Collectives (pg_collective.c). Only ddp/process_group.c and the backends include this.
 *
 * The group does what is the same everywhere: it numbers and checks the calls, keeps their order,
 * owns the communication thread, and remembers the first error. The backend moves the bytes. Its
 * functions are called by one thread at a time (the caller's or the communication thread), in the
 * order of issue, and never again after one of them failed, except for abort and close.
 */
#ifndef DDP_PG_BACKEND_H
#define DDP_PG_BACKEND_H

#include "ddp/process_group.h"

// Kinds of calls that are not for pg_run, but that ranks must agree on all the same.
#define PG_SHARED_ALLOC ((CollectiveKind)(PG_BARRIER + 1)) // count: bytes
#define PG_NEW_SUBGROUP ((CollectiveKind)(PG_BARRIER + 2)) // count: bit r: rank r is a member

// A barrier that is monitored names the first rank that is missing, or all, in PyTorch's words.
typedef enum PgMonitor { MONITOR_NONE, MONITOR_FIRST, MONITOR_ALL } PgMonitor;

// One collective on its way: valid arguments, and all its waits end at the deadline.
typedef struct PgCall {
    Collective collective;
    uint64_t sequence; // from 1; 0 for send and receive
    uint64_t deadline_ns;
    double timeout_s;  // what the deadline was made of, for messages; 0: the group's, not yet set
    const int *global; // [size], the ranks' numbers in the job, for messages; NULL: the same
    PgMonitor monitor;
    uint64_t record; // the flight recorder's
} PgCall;

typedef struct PgBackend {
    const char *name;
    // Carries the collective out and adds to *moved the bytes read from or written to other ranks.
    int (*run)(void *state, const PgCall *call, uint64_t *moved, Error *err);
    void *(*shared_alloc)(void *state, const PgCall *call, Error *err);
    // Makes a group of the call's members; *member is its state for this rank, NULL if outside.
    int (*new_subgroup)(void *state, const PgCall *call, void **member, Error *err);
    // This rank has failed: let the others fail with this message at once, unless they have
    // already.
    void (*abort)(void *state, const char *message);
    void (*close)(void *state);
} PgBackend;

// Takes the state: pg_close closes it.
ProcessGroup *pg_new(const PgBackend *backend, void *state, int rank, int size, double timeout_s);

size_t pg_type_bytes(PgType type);
const char *pg_kind_name(CollectiveKind kind);
const char *pg_type_name(PgType type); // "F32"

// "all_reduce(F32, 1000, sum)". Returns text.
enum { PG_DESCRIPTION_MAX = 96 };
const char *pg_describe(const Collective *collective, char text[PG_DESCRIPTION_MAX]);

// "1", or in a subgroup "1 (global 3)". Returns text. global is a PgCall's.
enum { PG_RANK_NAME_MAX = 40 };
const char *pg_rank_name(const int *global, int rank, char text[PG_RANK_NAME_MAX]);

// What rank `rank` of a group of `size` may not ask for: a root outside the group, itself as a
// peer, a buffer that is missing, an average of integers, sizes that overflow. 0, or -1 with err
// filled.
int pg_collective_check(const Collective *collective, int rank, int size, Error *err);

#endif
