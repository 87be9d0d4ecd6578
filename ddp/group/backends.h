/* backends.h: the list of backends, for those who bring ranks together and open a group for them
 * (ddp/rendezvous/init.c) without knowing any backend by name.
 *
 *     rank 0                                    the others
 *     create  makes an address
 *     publish it -----------------------------> reach  what stands at the address
 *     open                                      open
 */
#ifndef DDP_GROUP_BACKENDS_H
#define DDP_GROUP_BACKENDS_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"
#include "ddp/store/store.h"

enum { PG_CARD_MAX = 192, PG_ADDRESS_MAX = 257 };

// This rank's end of the group that is to be opened.
typedef struct PgPlace {
    Device *device; // of the ranks' tensors, which outlives the group; NULL: host memory
    int rank, world;
    const PgOptions *options;     // used while the group is opened
    char address[PG_ADDRESS_MAX]; // one word, the same on all ranks
    void *found;                  // what create or reach has left for open, or for release
    // For backends that keep the store: a connection of the group's own, which open takes, and what
    // is called when the group is closed, after its last use of the store.
    Store *store;
    void (*leave)(void *context);
    void *context;
} PgPlace;

// All functions fill err when they return -1 or NULL.
typedef struct PgOpener {
    const char *name;
    bool one_system;                    // its ranks are processes of one host
    bool keeps_store;                   // its groups use the store as long as they live
    bool (*built)(void);                // is it part of this build?
    bool (*fits)(const Device *device); // can it reach tensors there?
    // Says why it does not fit. Always -1.
    int (*refuse)(const Device *device, Error *err);
    // What distinguishes this rank's device from other ranks', in one word: no two ranks may have
    // the same. NULL: they may.
    int (*card)(const Device *device, int rank, char card[PG_CARD_MAX], Error *err);
    // Before the ranks meet: is this process what the backend needs? NULL: any is.
    int (*prepare)(int rank, int world, double timeout_s, Error *err);
    // Gives rank 0's text [capacity] to all ranks without a store, after prepare. NULL: the backend
    // has no way to.
    void (*tell)(char *text, int capacity, double timeout_s);
    int (*create)(PgPlace *place, Error *err);
    int (*reach)(PgPlace *place, Error *err);          // NULL: the address is enough
    ProcessGroup *(*open)(PgPlace *place, Error *err); // `found` is gone afterwards, in any case
    void (*release)(PgPlace *place);                   // without open; NULL: nothing to do
} PgOpener;

// The backend of that name or, for "auto", the first one in the list that is built and fits the
// device. NULL with err filled: none.
const PgOpener *pg_backend_find(const char *name, const Device *device, Error *err);

// A group of `world` ranks that are threads of this process, all with the same options: groups[r]
// is for the thread that plays rank r. Returns 0, or -1 with err filled and no group made.
int pg_open_threads(int world, const PgOptions *options, ProcessGroup **groups, Error *err);

#endif
