/* operation.c: see operation.h. */
#include "ddp/group/operation.h"

#include <stdint.h>

#include "common/base/format.h"

static const char *const operation_names[] = {
    "all_reduce",     "broadcast", "reduce", "all_gather", "gather",       "scatter",
    "reduce_scatter", "send",      "recv",   "barrier",    "shared_alloc", "new_subgroup"};
static const char *const type_names[] = {"F32", "F64", "I32", "I64", "U8", "F16", "BF16"};
static const char *const op_names[] = {"sum", "avg", "max", "min"};

const char *pg_operation_name(int operation) {
    return operation_names[operation];
}
const char *pg_type_name(PgType type) {
    return type_names[type];
}

const char *pg_rank_name(const int *global, int rank, char text[PG_RANK_NAME_MAX]) {
    if (global)
        snprintf(text, PG_RANK_NAME_MAX, "%d (global %d)", rank, global[rank]);
    else
        snprintf(text, PG_RANK_NAME_MAX, "%d", rank);
    return text;
}

// "new_subgroup(ranks 0, 3, 4)", truncated.
static void describe_members(uint64_t members, char text[PG_DESCRIPTION_MAX]) {
    text[0] = '\0';
    for (int r = 0; r < PG_SUBGROUP_PARENT_MAX; r++)
        if (members >> r & 1)
            format_append(text, PG_DESCRIPTION_MAX, "%s%d", *text ? ", " : "new_subgroup(ranks ",
                          r);
    format_append(text, PG_DESCRIPTION_MAX, ")");
}

const char *pg_describe(int operation, const Collective *collective,
                        char text[PG_DESCRIPTION_MAX]) {
    const CollectiveKind kind = (CollectiveKind)operation;
    if (operation == PG_NEW_SUBGROUP) {
        describe_members((uint64_t)collective->count, text);
        return text;
    }
    snprintf(text, PG_DESCRIPTION_MAX, "%s", operation_names[operation]);
    if (operation == PG_BARRIER) return text;
    if (operation == PG_SHARED_ALLOC) {
        format_append(text, PG_DESCRIPTION_MAX, "(%zu bytes)", collective->count);
        return text;
    }
    format_append(text, PG_DESCRIPTION_MAX, "(%s, %zu", type_names[collective->type],
                  collective->count);
    if (pg_reduces(kind)) format_append(text, PG_DESCRIPTION_MAX, ", %s", op_names[collective->op]);
    if (pg_has_root(kind))
        format_append(text, PG_DESCRIPTION_MAX, ", %s %d",
                      kind == PG_SEND   ? "to rank"
                      : kind == PG_RECV ? "from rank"
                                        : "root",
                      collective->root);
    format_append(text, PG_DESCRIPTION_MAX, ")");
    return text;
}
