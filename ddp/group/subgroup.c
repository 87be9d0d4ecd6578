/* subgroup.c: subgroups: their members, and this rank's number among them. */
#include "common/base/memory.h"
#include "ddp/group/group_internal.h"

// Sets bit r of *members for each r of ranks[count].
static int pack_members(const ProcessGroup *parent, const int *ranks, int count, uint64_t *members,
                        Error *err) {
    *members = 0;
    if (parent->size > PG_SUBGROUP_PARENT_MAX)
        return error_set(err, STATUS_FAILED, "subgroups are for groups of up to %d ranks, not %d",
                         PG_SUBGROUP_PARENT_MAX, parent->size);
    if (count < 1) return error_set(err, STATUS_FAILED, "a subgroup needs at least one rank");
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size)
            return error_set(err, STATUS_FAILED, "a subgroup with rank %d of a group of %d",
                             ranks[i], parent->size);
        if (*members >> ranks[i] & 1)
            return error_set(err, STATUS_FAILED, "a subgroup with rank %d twice", ranks[i]);
        *members |= (uint64_t)1 << ranks[i];
    }
    return 0;
}

// Creates the subgroup around its backend's state.
static ProcessGroup *new_member(const ProcessGroup *parent, uint64_t members, void *state,
                                uint64_t sequence) {
    const int size = pg_member_count(members), rank = pg_member_rank(members, parent->rank);
    int *global = memory_zalloc((size_t)size * sizeof *global);
    bool same = true; // ranks equal those in the job: messages give one number
    for (int r = 0; r < parent->size; r++) {
        const int own = pg_member_rank(members, r);
        if (own < 0) continue;
        global[own] = pg_global_rank(parent, r);
        same = same && global[own] == own;
    }
    FlightRecorder *flight = flight_recorder_open_inside(parent->flight, sequence);
    ProcessGroup *group =
        pg_new_around(parent->backend, state, rank, size, parent->timeout_s, flight);
    group->link = parent->link;
    if (same)
        free(global);
    else
        group->global = global;
    return group;
}

ProcessGroup *pg_new_subgroup(ProcessGroup *parent, const int *ranks, int count, Error *err) {
    pg_drain(parent);
    if (pg_check_sound(parent, err) != 0) return NULL;
    Error error = {0};
    PgCall call = {.operation = PG_NEW_SUBGROUP, .collective = {.type = PG_U8}};
    uint64_t members;
    if (pack_members(parent, ranks, count, &members, &error) != 0) {
        error_prefix(&error, "rank %d", parent->rank);
        pg_copy_error(&error, err);
        pg_break(parent, &error);
        return NULL;
    }
    call.collective.count = members;
    if (pg_admit(parent, &call, err) != 0 || pg_perform(parent, &call, err) != 0) return NULL;
    return call.object ? new_member(parent, members, call.object, call.sequence) : NULL;
}

// Creates one subgroup per color, in turn; each rank is a member of one at most.
ProcessGroup *pg_split(ProcessGroup *parent, int color, Error *err) {
    ProcessGroup *mine = NULL;
    Error error = {0};
    int32_t own = color, *colors = memory_zalloc((size_t)parent->size * sizeof *colors);
    int *ranks = memory_zalloc((size_t)parent->size * sizeof *ranks);
    pg_run(parent, pg_all_gather(&own, colors, 1, PG_I32), &error);
    for (int first = 0; first < parent->size && error.status == STATUS_OK; first++) {
        int32_t next = colors[first]; // processed at the first rank with this color
        int count = 0;
        for (int r = first; r < parent->size; r++) {
            if (colors[r] != next) continue;
            ranks[count++] = r;
            colors[r] = -1;
        }
        if (next < 0) continue;
        ProcessGroup *group = pg_new_subgroup(parent, ranks, count, &error);
        if (group) mine = group;
    }
    free(ranks);
    free(colors);
    if (pg_copy_error(&error, err) == 0) return mine;
    pg_close(mine);
    return NULL;
}
