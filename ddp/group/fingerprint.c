/* fingerprint.c: the comparison of the ranks' calls, and its error message. The exchange of
 * fingerprints is each backend's.
 */
#include <stdbool.h>
#include <string.h>

#include "common/base/format.h"
#include "ddp/group/backend.h"

enum { ASPECTS_MAX = 160 };

PgFingerprint pg_fingerprint(const PgCall *call) {
    const Collective *c = &call->collective;
    return (PgFingerprint){.sequence = call->sequence,
                           .count = c->count,
                           .operation = call->operation,
                           .type = (int32_t)c->type,
                           .op = (int32_t)c->op,
                           .root = c->root};
}

static const char *describe_call(const PgFingerprint *f, char text[PG_DESCRIPTION_MAX]) {
    Collective collective = {
        .count = (size_t)f->count, .type = (PgType)f->type, .op = (ReduceOp)f->op, .root = f->root};
    return pg_describe(f->operation, &collective, text);
}

// Writes "; they differ in operation, size", PyTorch's fingerprint wording.
static void name_aspects(const PgFingerprint *a, const PgFingerprint *b, char text[ASPECTS_MAX]) {
    const struct {
        const char *name;
        bool differs;
    } aspects[] = {{"sequence number", a->sequence != b->sequence},
                   {"operation", a->operation != b->operation},
                   {"size", a->count != b->count},
                   {"type", a->type != b->type},
                   {"reduction", a->op != b->op},
                   {"root", a->root != b->root}};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof aspects / sizeof *aspects; i++)
        if (aspects[i].differs)
            format_append(text, ASPECTS_MAX, "%s%s", *text ? ", " : "; they differ in ",
                          aspects[i].name);
}

int pg_fingerprint_compare(const PgCall *call, const PgFingerprint *first,
                           const PgFingerprint *other, int rank, Error *err) {
    char aspects[ASPECTS_MAX], one[PG_DESCRIPTION_MAX], two[PG_DESCRIPTION_MAX];
    char first_name[PG_RANK_NAME_MAX], other_name[PG_RANK_NAME_MAX];
    if (memcmp(first, other, sizeof *first) == 0) return 0;
    name_aspects(first, other, aspects);
    return error_set(err, STATUS_FAILED,
                     "collective %ju: ranks disagree: rank %s runs %s, rank %s runs %s%s",
                     (uintmax_t)call->sequence, pg_rank_name(call->global, 0, first_name),
                     describe_call(first, one), pg_rank_name(call->global, rank, other_name),
                     describe_call(other, two), aspects);
}

int pg_message_compare(const PgCall *call, int rank, uint64_t count, int type, Error *err) {
    const Collective *c = &call->collective;
    if (count == c->count && type == (int)c->type) return 0;
    Collective sent = *c;
    char one[PG_DESCRIPTION_MAX], two[PG_DESCRIPTION_MAX];
    char from[PG_RANK_NAME_MAX], to[PG_RANK_NAME_MAX];
    sent.kind = PG_SEND;
    sent.count = (size_t)count;
    sent.type = (PgType)type;
    sent.root = rank;
    return error_set(err, STATUS_FAILED, "ranks disagree: rank %s runs %s, rank %s runs %s",
                     pg_rank_name(call->global, c->root, from),
                     pg_describe((int)sent.kind, &sent, one), pg_rank_name(call->global, rank, to),
                     pg_describe((int)c->kind, c, two));
}
