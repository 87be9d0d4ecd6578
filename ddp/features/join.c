/* join.c: the loop of a joined rank, and the all-reduce per iteration that counts the active ranks:
 * those contribute 1, joined ranks 0.
 */
#include "ddp/features/join.h"

#include <string.h>

#include "common/base/memory.h"

enum { SKEW_WARNING = 1000 };

struct Join {
    JoinConfig config;
    ProcessGroup *group;
    Joinable *joinables; // [count]
    size_t count;
    int active; // active ranks in this iteration
};

static void set_all(const Join *join, Join *value) {
    for (size_t i = 0; i < join->count; i++)
        if (join->joinables[i].set_join)
            join->joinables[i].set_join(join->joinables[i].state, value);
}

Join *join_open(const Joinable *joinables, size_t count, const JoinConfig *config, Error *err) {
    if (count == 0)
        return error_null(err, STATUS_FAILED,
                          "The join context manager requires at least one joinable");
    for (size_t i = 1; i < count; i++) {
        if (joinables[i].group == joinables[0].group) continue;
        return error_null(err, STATUS_FAILED,
                          "Using join context manager with multiple process groups");
    }
    Join *join = memory_zalloc(sizeof *join);
    *join = (Join){.config = *config, .group = joinables[0].group, .count = count};
    join->active = pg_size(join->group);
    join->joinables = memory_zalloc(count * sizeof *joinables);
    memcpy(join->joinables, joinables, count * sizeof *joinables);
    if (!config->disable) set_all(join, join);
    return join;
}

void join_abandon(Join *join) {
    if (!join) return;
    if (!join->config.disable) set_all(join, NULL);
    free(join->joinables);
    free(join);
}

int join_divisor(const Join *join) {
    return join->config.divide_by_active_ranks ? join->active : 0;
}

// *value: the sum over the ranks.
static int sum(Join *join, int32_t *value, Error *err) {
    return pg_run(join->group, pg_all_reduce(value, 1, PG_I32, PG_SUM), err);
}

int join_notify(Join *join, const void *joinable_state, Error *err) {
    if (join->config.disable || joinable_state != join->joinables[0].state) return 0;
    int32_t active = 1, ended = 0;
    if (sum(join, &active, err) != 0) return -1;
    join->active = (int)active;
    if (!join->config.throw_on_early_termination) return 0;
    if (sum(join, &ended, err) != 0) return -1;
    if (ended == 0) return 0;
    return error_set(
        err, STATUS_FAILED,
        "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
}

static int mirror_iteration(Join *join, Error *err) {
    int32_t ended = 1;
    if (join->config.throw_on_early_termination) {
        if (sum(join, &ended, err) != 0) return -1;
        return error_set(err, STATUS_FAILED, "Rank %d exhausted all inputs.", pg_rank(join->group));
    }
    for (size_t i = 0; i < join->count; i++) {
        const Joinable *joinable = &join->joinables[i];
        if (joinable->mirror && joinable->mirror(joinable->state, err) != 0) return -1;
    }
    return 0;
}

static void warn_of_skew(const Join *join) {
    fprintf(stderr,
            "Detected uneven input skew of greater than %d. This means that rank %d has at least "
            "%d fewer inputs than other currently-active ranks. This level of skew could lead to "
            "performance degradation during training.\n",
            SKEW_WARNING, pg_rank(join->group), SKEW_WARNING);
}

static int wait_for_all(Join *join, Error *err) {
    bool last = true;
    for (int mirrored = 0;; mirrored++) {
        int32_t active = 0;
        if (sum(join, &active, err) != 0) return -1;
        join->active = (int)active;
        if (active == 0) break;
        last = false;
        if (mirrored == SKEW_WARNING) warn_of_skew(join);
        if (mirror_iteration(join, err) != 0) return -1;
    }
    for (size_t i = 0; i < join->count; i++) {
        const Joinable *joinable = &join->joinables[i];
        if (joinable->end && joinable->end(joinable->state, last, err) != 0) return -1;
    }
    return 0;
}

int join_end(Join *join, Error *err) {
    int status = join->config.disable ? 0 : wait_for_all(join, err);
    join_abandon(join);
    return status;
}

int join_elect(ProcessGroup *group, bool candidate, Error *err) {
    int32_t rank = candidate ? pg_rank(group) : -1;
    if (pg_run(group, pg_all_reduce(&rank, 1, PG_I32, PG_MAX), err) != 0) return -1;
    if (rank >= 0) return (int)rank;
    return error_set(err, STATUS_FAILED, "no rank can be elected: none is a candidate");
}
