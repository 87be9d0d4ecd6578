/* collective_load.c: see collective_load.h. */
#include "ddp/group/collective_load.h"

static LinkLoad both_ways(double bytes, int rounds) {
    return (LinkLoad){.out_bytes = bytes, .in_bytes = bytes, .rounds = rounds};
}

// A chain of ranks: place 0 is its head, and the last place forwards nothing.
static LinkLoad chain(double bytes, int place, int size) {
    return (LinkLoad){.out_bytes = place < size - 1 ? bytes : 0,
                      .in_bytes = place > 0 ? bytes : 0,
                      .rounds = size - 1};
}

LinkLoad collective_load(const Collective *c, int rank, int size) {
    if (size == 1) return (LinkLoad){0};
    const double bytes = (double)c->count * (double)pg_type_bytes(c->type), others = size - 1;
    const int place = (rank - c->root + size) % size; // along a chain that begins at the root
    const double at_root = rank == c->root ? others * bytes : 0, at_other = place ? bytes : 0;
    switch (c->kind) {
    case PG_ALL_REDUCE:
        return both_ways(2 * others / size * bytes, 2 * (size - 1));
    case PG_REDUCE_SCATTER:
    case PG_ALL_GATHER:
        return both_ways(others * bytes, size - 1);
    case PG_BROADCAST:
        return chain(bytes, place, size);
    case PG_REDUCE:
        return chain(bytes, (size - 1) - place, size);
    case PG_GATHER:
        return (LinkLoad){.out_bytes = at_other, .in_bytes = at_root, .rounds = 1};
    case PG_SCATTER:
        return (LinkLoad){.out_bytes = at_root, .in_bytes = at_other, .rounds = 1};
    case PG_SEND:
        return (LinkLoad){.out_bytes = bytes, .rounds = 1};
    case PG_RECV:
        return (LinkLoad){.in_bytes = bytes, .rounds = 1};
    case PG_BARRIER:
        return both_ways(0, 32 - __builtin_clz((unsigned)size - 1)); // log2, rounded up
    }
    return (LinkLoad){0};
}
