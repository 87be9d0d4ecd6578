/* operation.h: all that the ranks of a group must agree on, and how messages, records and traces
 * call it.
 */
#ifndef DDP_GROUP_OPERATION_H
#define DDP_GROUP_OPERATION_H

#include <stdbool.h>

#include "ddp/group/collective.h"

// An operation is a number: that of a CollectiveKind, or one of these, which are not for pg_run.
// Their size stands in Collective.count.
typedef enum PgInternal {
    PG_SHARED_ALLOC = PG_BARRIER + 1, // bytes
    PG_NEW_SUBGROUP,                  // bit r is set: rank r of the parent is a member
} PgInternal;

enum { PG_SUBGROUP_PARENT_MAX = 64 }; // ranks of a group that has subgroups

const char *pg_operation_name(int operation); // "all_reduce"
const char *pg_type_name(PgType type);        // "F32"
static inline bool pg_is_pairwise(int operation) {
    return operation == PG_SEND || operation == PG_RECV;
}

// "all_reduce(F32, 1000, sum)". Returns text.
enum { PG_DESCRIPTION_MAX = 96 };
const char *pg_describe(int operation, const Collective *collective, char text[PG_DESCRIPTION_MAX]);

// "1", or in a subgroup "1 (global 3)". Returns text. global: [size], the ranks' numbers in the
// job; NULL: the same.
enum { PG_RANK_NAME_MAX = 40 };
const char *pg_rank_name(const int *global, int rank, char text[PG_RANK_NAME_MAX]);

#endif
