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
    const char *name = operation_names[operation];
    const char *type = type_names[collective->type];
    const char *op = op_names[collective->op];
    size_t count = collective->count;
    int root = collective->root;
    switch (operation) {
    case PG_ALL_REDUCE:
    case PG_REDUCE_SCATTER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, %s)", name, type, count, op);
        break;
    case PG_REDUCE:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, %s, root %d)", name, type, count, op, root);
        break;
    case PG_BROADCAST:
    case PG_GATHER:
    case PG_SCATTER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, root %d)", name, type, count, root);
        break;
    case PG_SEND:
    case PG_RECV:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu, %s rank %d)", name, type, count,
                 operation == PG_SEND ? "to" : "from", root);
        break;
    case PG_ALL_GATHER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%s, %zu)", name, type, count);
        break;
    case PG_BARRIER:
        snprintf(text, PG_DESCRIPTION_MAX, "%s", name);
        break;
    case PG_NEW_SUBGROUP:
        describe_members((uint64_t)count, text);
        break;
    default: // PG_SHARED_ALLOC
        snprintf(text, PG_DESCRIPTION_MAX, "%s(%zu bytes)", name, count);
        break;
    }
    return text;
}
