/* moves.c: gathers a unit's weights and reduces its gradients.
 *
 *     gather   shards -> this rank's piece of `arriving` -> all_gather -> the slot, by parameter
 *     reduce   the slot -> `leaving`, by rank -> reduce_scatter -> the shards' gradients
 *
 * Both collectives run in place. At most one gather and one reduction are in flight; after a step,
 * two gathers, the second one in `leaving`. Of a unit whose pieces do not fit, a gather starts with
 * the first part, and a reduction ends with the last one in flight; the other parts are moved one
 * by one.
 */
#include "common/base/memory.h"
#include "ddp/fsdp/fsdp_internal.h"

// The part of a parameter's shard that is in a move.
typedef struct Span {
    FsdpParameter *parameter;
    size_t first, count; // elements
    size_t at;           // in the move's piece, in words
    size_t next, word;   // the next parameter, and its offset in the whole piece
} Span;

// Advances *span, which begins as {0}. Returns false after the last one.
static bool next_span(const FsdpMove *move, Span *span) {
    const FsdpUnit *unit = move->unit;
    while (span->next < unit->count) {
        FsdpParameter *parameter = &unit->parameters[span->next++];
        if (move->reduces && !parameter->reduced) continue;
        const size_t per_word = parameter->half && !move->reduces ? 2 : 1, word = span->word;
        span->word += (parameter->padded + per_word - 1) / per_word;
        const size_t begin = larger(word, move->first);
        const size_t end = smaller(span->word, move->first + move->count);
        if (begin >= end) continue;
        span->parameter = parameter;
        span->first = (begin - word) * per_word;
        span->count = smaller((end - word) * per_word, parameter->padded) - span->first;
        span->at = begin - move->first;
        return true;
    }
    return false;
}

static float *piece_of(const FsdpMove *move, int rank) {
    return move->memory + (size_t)rank * move->count;
}

static int start(FsdpMove *move, Collective collective, Error *err) {
    const FsdpUnit *unit = move->unit;
    move->work = pg_start(unit->fsdp->group, pg_of_bucket(collective, unit->number), err);
    if (move->work) return 0;
    move->unit = NULL;
    return -1;
}

static int wait_for(FsdpMove *move, Error *err) {
    if (pg_work_wait(move->work, NULL, NULL, err) == 0) return 0;
    move->unit = NULL;
    return -1;
}

// ---- gather -----------------------------------------------------------------------------------

// Writes this rank's piece.
static void write_piece(const FsdpMove *move, float *piece) {
    const FsdpUnit *unit = move->unit;
    Device *device = unit->fsdp->device;
    for (Span span = {0}; next_span(move, &span);) {
        const float *from = unit->shards + span.parameter->shard_at + span.first;
        float *to = piece + span.at;
        if (span.parameter->half)
            device_kernels(device)->elementwise->narrow(unit->config.precision,
                                                        (uint16_t *)(void *)to, from, span.count);
        else
            device_copy(device, to, device, from, span.count * sizeof *from);
    }
}

// Copies a rank's piece to its place in the whole parameters. Those in float32, which are the
// first, are copied in one call.
static void read_piece(const FsdpMove *move, int rank) {
    const FsdpUnit *unit = move->unit;
    const Kernels *kernels = device_kernels(unit->fsdp->device);
    const float *piece = piece_of(move, rank);
    Slice *slices = unit->fsdp->slices;
    size_t listed = 0;
    for (Span span = {0}; next_span(move, &span);) {
        const FsdpParameter *parameter = span.parameter;
        float *to =
            unit->weights + parameter->whole_at + (size_t)rank * parameter->padded + span.first;
        if (parameter->half)
            kernels->elementwise->widen(unit->config.precision, to,
                                        (const uint16_t *)(const void *)(piece + span.at),
                                        span.count);
        else
            slices[listed++] = (Slice){to, span.count};
    }
    kernels->slices->unpack(slices, listed, piece);
}

static int start_part(FsdpMove *move, FsdpUnit *unit, size_t first, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    const bool second = move == &fsdp->second;
    const size_t room = second ? fsdp->reduce_room : fsdp->gather_room;
    *move = (FsdpMove){.unit = unit,
                       .first = first,
                       .count = smaller(room, unit->piece_words - first),
                       .memory = second ? fsdp->leaving : fsdp->arriving};
    float *mine = piece_of(move, pg_rank(fsdp->group));
    write_piece(move, mine);
    return start(move, pg_all_gather(mine, move->memory, move->count, PG_F32), err);
}

int unit_start_gather(FsdpUnit *unit, bool second, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    FsdpMove *move = second && fsdp->gathering.unit ? &fsdp->second : &fsdp->gathering;
    return unit->weights || unit->count == 0 || move->unit ? 0 : start_part(move, unit, 0, err);
}

static void end_gather(Fsdp *fsdp) {
    fsdp->gathering = fsdp->second;
    fsdp->second = (FsdpMove){0};
}

// Drops gathers of other units: the forward did not follow the order of the last one.
static int drop_others(Fsdp *fsdp, const FsdpUnit *unit, Error *err) {
    while (fsdp->gathering.unit && fsdp->gathering.unit != unit) {
        if (wait_for(&fsdp->gathering, err) != 0) return -1;
        end_gather(fsdp);
    }
    return 0;
}

int unit_gather(FsdpUnit *unit, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    FsdpMove *move = &fsdp->gathering;
    if (unit->weights || unit->count == 0) return 0;
    if (drop_others(fsdp, unit, err) != 0 || unit_start_gather(unit, false, err) != 0) return -1;
    unit->weights = slot_take(fsdp, unit);
    for (;;) {
        if (wait_for(move, err) != 0) break;
        for (int r = 0; r < pg_size(fsdp->group); r++) read_piece(move, r);
        const size_t done = move->first + move->count;
        if (done == unit->piece_words) {
            end_gather(fsdp);
            unit_show_whole(unit);
            return 0;
        }
        if (start_part(move, unit, done, err) != 0) break;
    }
    unit->weights = NULL; // its slot stays taken: the group is broken
    return -1;
}

// ---- reduce -----------------------------------------------------------------------------------

// Chooses the parameters of the reduced piece, those with a gradient, and marks the shards'
// gradients as defined: reduce_finish has their values. Returns the words of the piece.
static size_t plan_reduce(FsdpUnit *unit) {
    size_t words = 0;
    for (size_t i = 0; i < unit->count; i++) {
        FsdpParameter *parameter = &unit->parameters[i];
        Tensor *tensor = parameter->tensor;
        parameter->reduced = tensor->requires_grad && parameter->hidden_has_grad;
        parameter->hidden_has_grad = false;
        if (!parameter->reduced) continue;
        parameter->adds = tensor->has_grad;
        tensor->has_grad = true;
        words += parameter->padded;
    }
    return words;
}

// Writes a rank's piece of the gradients.
static void write_gradients(const FsdpMove *move, int rank) {
    const FsdpUnit *unit = move->unit;
    Slice *slices = unit->fsdp->slices;
    size_t listed = 0;
    for (Span span = {0}; next_span(move, &span);) {
        const FsdpParameter *parameter = span.parameter;
        float *from = unit->gradients + parameter->whole_at + (size_t)rank * parameter->padded;
        slices[listed++] = (Slice){from + span.first, span.count};
    }
    device_kernels(unit->fsdp->device)->slices->pack(piece_of(move, rank), slices, listed);
}

// Adds this rank's reduced piece to the shards' gradients.
static void take_gradients(const FsdpMove *move, const float *piece) {
    const FsdpUnit *unit = move->unit;
    Device *device = unit->fsdp->device;
    for (Span span = {0}; next_span(move, &span);) {
        float *to = unit->shard_grads + span.parameter->shard_at + span.first;
        if (span.parameter->adds)
            device_kernels(device)->elementwise->accumulate(to, piece + span.at, span.count);
        else
            device_copy(device, to, device, piece + span.at, span.count * sizeof *to);
    }
}

int reduce_finish(Fsdp *fsdp, Error *err) {
    FsdpMove *move = &fsdp->reducing;
    if (!move->unit) return 0;
    if (wait_for(move, err) != 0) return -1;
    take_gradients(move, piece_of(move, pg_rank(fsdp->group)));
    move->unit = NULL;
    return 0;
}

static int reduce_part(FsdpUnit *unit, size_t first, size_t words, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    FsdpMove *move = &fsdp->reducing;
    *move = (FsdpMove){.unit = unit,
                       .reduces = true,
                       .first = first,
                       .count = smaller(fsdp->reduce_room, words - first),
                       .memory = fsdp->leaving};
    for (int r = 0; r < pg_size(fsdp->group); r++) write_gradients(move, r);
    float *mine = piece_of(move, pg_rank(fsdp->group));
    const ReduceOp op = unit->config.global_normalization ? PG_SUM : PG_AVG;
    return start(move, pg_reduce_scatter(move->memory, mine, move->count, PG_F32, op), err);
}

int unit_start_reduce(FsdpUnit *unit, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    const bool arrives = fsdp->second.unit || fsdp->gathering.memory == fsdp->leaving;
    if (arrives && drop_others(fsdp, NULL, err) != 0) return -1; // in the memory of gradients
    if (reduce_finish(fsdp, err) != 0) return -1;
    const size_t words = plan_reduce(unit);
    for (size_t first = 0; first < words; first += fsdp->reduce_room)
        if (reduce_finish(fsdp, err) != 0 || reduce_part(unit, first, words, err) != 0) return -1;
    slot_return(fsdp, unit->gradients);
    unit->gradients = NULL;
    return fsdp->root->config.overlap ? 0 : reduce_finish(fsdp, err);
}

// ---- after an error -----------------------------------------------------------------------------

void moves_drop(Fsdp *fsdp) {
    Error ignored = {0};
    FsdpMove *const moves[] = {&fsdp->gathering, &fsdp->second, &fsdp->reducing};
    for (int i = 0; i < 3; i++)
        if (moves[i]->unit) (void)pg_work_wait(moves[i]->work, NULL, NULL, &ignored);
}
