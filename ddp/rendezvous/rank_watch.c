/* rank_watch.c: see rank_watch.h. */
#include "ddp/rendezvous/rank_watch.h"

#include "common/base/memory.h"
#include "ddp/rendezvous/heartbeat.h"

typedef struct RankWatch {
    JobWatch watch; // must be the first field: the functions below are given a pointer to it
    ProcessGroup *group;
    Heartbeat *heartbeat; // NULL without a launcher
} RankWatch;

static void enter(const JobWatch *self, const char *phase, uint64_t step) {
    const RankWatch *watch = (const RankWatch *)self;
    heartbeat_step(watch->heartbeat, step);
    heartbeat_phase(watch->heartbeat, phase);
}

static int check(const JobWatch *self, Error *err) {
    return pg_check_sound(((const RankWatch *)self)->group, err);
}

// The group is broken already if this error came from it: then another rank's is the cause.
static void give_up(const JobWatch *self, const Error *cause) {
    const RankWatch *watch = (const RankWatch *)self;
    if (pg_abort(watch->group, cause)) heartbeat_culprit(watch->heartbeat);
}

const JobWatch *rank_watch_open(ProcessGroup *group, int local_rank) {
    RankWatch *watch = memory_zalloc(sizeof *watch);
    *watch = (RankWatch){.watch = {.enter = enter, .check = check, .give_up = give_up},
                         .group = group,
                         .heartbeat = heartbeat_open(local_rank)};
    return &watch->watch;
}

void rank_watch_close(const JobWatch *watch) {
    RankWatch *own = (RankWatch *)watch;
    heartbeat_close(own->heartbeat);
    free(own);
}
