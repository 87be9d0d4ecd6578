/* backends.h: the list of backends, for callers that connect ranks and open a group
 * (ddp/rendezvous/init.c) independently of the backend.
 *
 *     rank 0                                    the others
 *     create  makes an address
 *     publish it -----------------------------> reach  connects to the address
 *     open                                      open
 */
#ifndef DDP_GROUP_BACKENDS_H
#define DDP_GROUP_BACKENDS_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"
#include "ddp/store/store.h"

enum { PG_CARD_MAX = 192, PG_ADDRESS_MAX = 257 };

// The arguments with which this rank opens its end of a group.
typedef struct PgEndpoint {
    Device *device; // of the ranks' tensors; outlives the group; NULL: host memory
    int rank, world;
    const PgOptions *options;     // used by open only
    char address[PG_ADDRESS_MAX]; // one word, the same on all ranks
    void *found;                  // result of create or reach, for open or release
    // For backends with keeps_store: a connection for the group alone, which open takes, and a
    // function that is called when the group is closed, after its last use of the store.
    Store *store;
    void (*leave)(void *context);
    void *context;
} PgEndpoint;

// All functions fill err when they return -1 or NULL. Without `built` all functions are NULL.
typedef struct PgOpener {
    const char *name;
    bool built;         // is compiled in
    const char *needs;  // the build options that compile it in, for messages
    bool accesses_gpus; // its tensors are in the memory of a GPU; otherwise in the host's
    bool one_system;    // its ranks are processes of one host
    bool keeps_store;   // its groups use the store until they are closed
    // One word that identifies this rank's device; no two ranks may have the same. NULL: ranks may
    // share a device.
    int (*card)(const Device *device, int rank, char card[PG_CARD_MAX], Error *err);
    // Whether the backend's own launcher, such as mpirun, started this process. NULL: the backend
    // has no launcher.
    bool (*started)(void);
    // Checks the process before rendezvous. NULL: no requirements.
    int (*prepare)(int rank, int world, double timeout_s, Error *err);
    // Broadcasts rank 0's text [capacity] without a store, after prepare. NULL: not possible.
    void (*tell)(char *text, int capacity, double timeout_s);
    int (*create)(PgEndpoint *endpoint, Error *err);
    int (*reach)(PgEndpoint *endpoint, Error *err); // NULL: nothing to connect to
    // Opens this rank's end of the group. Takes `found` and `store`, also on failure; then `leave`
    // was not called.
    ProcessGroup *(*open)(PgEndpoint *endpoint, Error *err);
    void (*release)(PgEndpoint *endpoint); // frees `found` without open; NULL: nothing to free
} PgOpener;

extern const PgOpener pg_opener_shm, pg_opener_mpi, pg_opener_nccl;

// The backend of that name; for "auto", the first in the list that is compiled in and fits the
// device. NULL with err filled: none.
const PgOpener *pg_backend_find(const char *name, const Device *device, Error *err);

// Returns the backend whose own launcher started this process, or NULL.
const PgOpener *pg_backend_of_starter(void);

#endif
