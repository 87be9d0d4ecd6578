/* own_sum.c: see own_sum.h. */
#include "ddp/group/own_sum.h"

#include "ddp/group/group_internal.h"
#include "ddp/group/reduce.h"

static _Thread_local const ProcessGroup *summing; // the group whose sum this thread runs

int pg_set_sum(ProcessGroup *group, PgSum *sum, Error *err) {
    if (group->backend->poll)
        return error_set(err, STATUS_USAGE,
                         "--all-reduce sums in the host's memory, and %s's gradients are on GPUs",
                         group->backend->name);
    group->sum = sum;
    return 0;
}

bool own_sum_runs(const ProcessGroup *group, const PgCall *call) {
    const Collective *c = &call->collective;
    return group->sum && call->operation == PG_ALL_REDUCE && c->bucket && c->type == PG_F32 &&
           (c->op == PG_SUM || c->op == PG_AVG);
}

int own_sum_run(ProcessGroup *group, const PgCall *call, Error *err) {
    const Collective *c = &call->collective;
    summing = group;
    int status = group->sum(group, c->receive, c->count, err);
    summing = NULL;
    if (status != 0)
        return error_set(err, STATUS_FAILED, "own_all_reduce.sum failed and did not say why");
    if (c->op == PG_AVG) reduce_scale(c->type, c->receive, group->size, c->count);
    return 0;
}

bool own_sum_inside(const ProcessGroup *group) {
    return summing == group;
}

int own_sum_check(const Collective *collective, bool waits, Error *err) {
    const bool pairwise = collective->kind == PG_SEND || collective->kind == PG_RECV;
    if (pairwise && waits) return 0;
    return error_set(err, STATUS_FAILED,
                     "own_all_reduce.sum called %s%s: it runs on the communication thread, and "
                     "sends and receives by pg_run only",
                     waits ? "" : "pg_start of ", pg_operation_name((int)collective->kind));
}
