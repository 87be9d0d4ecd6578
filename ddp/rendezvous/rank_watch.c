/* rank_watch.c: see rank_watch.h. */
#include "ddp/rendezvous/rank_watch.h"

#include "common/base/memory.h"

typedef struct RankWatch {
    JobWatch watch; // must be the first field: the functions below are given a pointer to it
    ProcessGroup *group;
} RankWatch;

static void enter(const JobWatch *self, const char *phase, uint64_t step) {
    pg_enter(((const RankWatch *)self)->group, phase, step);
}

static int check(const JobWatch *self, Error *err) {
    return pg_check_sound(((const RankWatch *)self)->group, err);
}

static void give_up(const JobWatch *self, const Error *cause) {
    (void)pg_abort(((const RankWatch *)self)->group, cause);
}

const JobWatch *rank_watch_open(ProcessGroup *group) {
    RankWatch *watch = memory_zalloc(sizeof *watch);
    *watch =
        (RankWatch){.watch = {.enter = enter, .check = check, .give_up = give_up}, .group = group};
    return &watch->watch;
}

void rank_watch_close(const JobWatch *watch) {
    free((RankWatch *)watch);
}
