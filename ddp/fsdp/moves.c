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

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

// The elements of a parameter's shard whose words are in a move. Returns how many they are;
// *first: the first one, *at: its word in the move.
static size_t elements_in(const FsdpMove *move, size_t word, const FsdpParameter *parameter,
                          bool half, size_t *first, size_t *at) {
    const size_t per_word = half ? 2 : 1, words = (parameter->padded + per_word - 1) / per_word;
    const size_t begin = move->first > word ? move->first - word : 0; // in words of the shard
    const size_t end =
        smaller(words, move->first + move->count > word ? move->first + move->count - word : 0);
    if (begin >= end) return 0;
    *first = begin * per_word;
    *at = word + begin - move->first;
    return smaller(end * per_word, parameter->padded) - *first;
}

// ---- gather -----------------------------------------------------------------------------------

// Writes this rank's piece.
static void write_piece(const FsdpMove *move, float *piece) {
    const FsdpUnit *unit = move->unit;
    Device *device = unit->fsdp->device;
    for (size_t i = 0; i < unit->count; i++) {
        const FsdpParameter *parameter = &unit->parameters[i];
        size_t first, at;
        size_t n = elements_in(move, parameter->gather_at, parameter, parameter->half, &first, &at);
        if (n == 0) continue;
        const float *from = unit->shards + parameter->shard_at + first;
        if (parameter->half)
            device_kernels(device)->elementwise->narrow(unit->config.precision,
                                                        (uint16_t *)(void *)(piece + at), from, n);
        else
            device_copy(device, piece + at, device, from, n * sizeof *from);
    }
}

// Copies rank r's piece to its place in the whole parameters: those in float32 in one call, as far
// as no 16-bit one lies between them.
static void read_piece(const FsdpUnit *unit, const FsdpMove *move, const float *piece,
                       size_t rank) {
    const Kernels *kernels = device_kernels(unit->fsdp->device);
    Slice *slices = unit->fsdp->slices;
    size_t listed = 0, begin = 0; // slices, from word `begin` of the piece
    for (size_t i = 0; i < unit->count; i++) {
        const FsdpParameter *parameter = &unit->parameters[i];
        size_t first, at;
        size_t n = elements_in(move, parameter->gather_at, parameter, parameter->half, &first, &at);
        if (n == 0) continue;
        float *to = unit->weights + parameter->whole_at + rank * parameter->padded + first;
        if (parameter->half) {
            kernels->slices->unpack(slices, listed, piece + begin);
            kernels->elementwise->widen(unit->config.precision, to,
                                        (const uint16_t *)(const void *)(piece + at), n);
            listed = 0;
            continue;
        }
        if (listed == 0) begin = at;
        slices[listed++] = (Slice){to, n};
    }
    kernels->slices->unpack(slices, listed, piece + begin);
}

static int start_part(FsdpMove *move, FsdpUnit *unit, size_t first, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    const bool second = move == &fsdp->second;
    const size_t room = second ? fsdp->reduce_room : fsdp->gather_room;
    *move = (FsdpMove){.unit = unit,
                       .first = first,
                       .count = smaller(room, unit->piece_words - first),
                       .memory = second ? fsdp->leaving : fsdp->arriving};
    float *mine = move->memory + (size_t)pg_rank(fsdp->group) * move->count;
    write_piece(move, mine);
    const Collective gather = pg_all_gather(mine, move->memory, move->count, PG_F32);
    move->work = pg_start(fsdp->group, pg_of_bucket(gather, unit->number), err);
    if (!move->work) move->unit = NULL;
    return move->work ? 0 : -1;
}

static int wait_for_gather(Fsdp *fsdp, Error *err) {
    FsdpMove *move = &fsdp->gathering;
    if (pg_work_wait(move->work, NULL, NULL, err) == 0) return 0;
    move->unit = NULL;
    return -1;
}

int unit_start_gather(FsdpUnit *unit, Error *err) {
    FsdpMove *move = &unit->fsdp->gathering;
    return unit->weights || unit->count == 0 || move->unit ? 0 : start_part(move, unit, 0, err);
}

int unit_start_second(FsdpUnit *unit, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    if (!fsdp->gathering.unit) return unit_start_gather(unit, err);
    return unit->weights || unit->count == 0 || fsdp->second.unit
               ? 0
               : start_part(&fsdp->second, unit, 0, err);
}

static void end_gather(Fsdp *fsdp) {
    fsdp->gathering = fsdp->second;
    fsdp->second = (FsdpMove){0};
}

// Drops gathers of other units: the forward did not follow the order of the last one.
static int drop_others(Fsdp *fsdp, const FsdpUnit *unit, Error *err) {
    while (fsdp->gathering.unit && fsdp->gathering.unit != unit) {
        if (wait_for_gather(fsdp, err) != 0) return -1;
        end_gather(fsdp);
    }
    return 0;
}

int unit_gather(FsdpUnit *unit, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    FsdpMove *move = &fsdp->gathering;
    if (unit->weights || unit->count == 0) return 0;
    if (drop_others(fsdp, unit, err) != 0 || unit_start_gather(unit, err) != 0) return -1;
    unit->weights = slot_take(fsdp, unit);
    for (;;) {
        if (wait_for_gather(fsdp, err) != 0) break;
        for (int r = 0; r < pg_size(fsdp->group); r++)
            read_piece(unit, move, move->memory + (size_t)r * move->count, (size_t)r);
        const size_t done = move->first + move->count;
        if (done == unit->piece_words) {
            end_gather(fsdp);
            unit_show_whole(unit);
            return 0;
        }
        if (start_part(move, unit, done, err) != 0) break;
    }
    slot_return(fsdp, unit->weights);
    unit->weights = NULL;
    return -1;
}

// ---- reduce -----------------------------------------------------------------------------------

// Lays out the reduced piece: the parameters with a gradient. Returns its words.
static size_t plan_reduce(FsdpUnit *unit) {
    size_t words = 0;
    for (size_t i = 0; i < unit->count; i++) {
        FsdpParameter *parameter = &unit->parameters[i];
        const Tensor *tensor = parameter->tensor;
        parameter->reduced = tensor->requires_grad && parameter->whole_has_grad;
        parameter->whole_has_grad = false;
        if (!parameter->reduced) continue;
        parameter->adds = tensor->has_grad;
        parameter->reduce_at = words;
        words += parameter->padded;
    }
    return words;
}

// Writes rank r's piece of the gradients.
static void write_gradients(const FsdpMove *move, float *piece, size_t rank) {
    const FsdpUnit *unit = move->unit;
    Fsdp *fsdp = unit->fsdp;
    size_t slices = 0;
    for (size_t i = 0; i < unit->count; i++) {
        const FsdpParameter *parameter = &unit->parameters[i];
        size_t first, at;
        if (!parameter->reduced) continue;
        size_t n = elements_in(move, parameter->reduce_at, parameter, false, &first, &at);
        float *from = unit->gradients + parameter->whole_at + rank * parameter->padded;
        if (n > 0) fsdp->slices[slices++] = (Slice){from + first, n};
    }
    device_kernels(fsdp->device)->slices->pack(piece, fsdp->slices, slices);
}

// Adds this rank's reduced piece to the shards' gradients.
static void take_gradients(const FsdpMove *move, const float *piece) {
    const FsdpUnit *unit = move->unit;
    Device *device = unit->fsdp->device;
    for (size_t i = 0; i < unit->count; i++) {
        const FsdpParameter *parameter = &unit->parameters[i];
        size_t first, at;
        if (!parameter->reduced) continue;
        size_t n = elements_in(move, parameter->reduce_at, parameter, false, &first, &at);
        if (n == 0) continue;
        float *to = unit->shard_grads + parameter->shard_at + first;
        if (parameter->adds)
            device_kernels(device)->elementwise->accumulate(to, piece + at, n);
        else
            device_copy(device, to, device, piece + at, n * sizeof *to);
    }
}

int reduce_finish(Fsdp *fsdp, Error *err) {
    FsdpMove *move = &fsdp->reducing;
    FsdpUnit *unit = move->unit;
    if (!unit) return 0;
    move->unit = NULL;
    if (pg_work_wait(move->work, NULL, NULL, err) != 0) return -1;
    move->unit = unit;
    take_gradients(move, fsdp->leaving + (size_t)pg_rank(fsdp->group) * move->count);
    move->unit = NULL;
    return 0;
}

static int reduce_part(FsdpUnit *unit, size_t first, size_t words, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    FsdpMove *move = &fsdp->reducing;
    *move = (FsdpMove){
        .unit = unit, .first = first, .count = smaller(fsdp->reduce_room, words - first)};
    for (int r = 0; r < pg_size(fsdp->group); r++)
        write_gradients(move, fsdp->leaving + (size_t)r * move->count, (size_t)r);
    float *mine = fsdp->leaving + (size_t)pg_rank(fsdp->group) * move->count;
    const ReduceOp op = unit->config.global_normalization ? PG_SUM : PG_AVG;
    const Collective sum = pg_reduce_scatter(fsdp->leaving, mine, move->count, PG_F32, op);
    move->work = pg_start(fsdp->group, pg_of_bucket(sum, unit->number), err);
    if (!move->work) move->unit = NULL;
    return move->work ? 0 : -1;
}

// Marks the shards' gradients as defined: their values arrive by reduce_finish.
static void define_gradients(FsdpUnit *unit) {
    for (size_t i = 0; i < unit->count; i++)
        if (unit->parameters[i].reduced) unit->parameters[i].tensor->has_grad = true;
}

int unit_start_reduce(FsdpUnit *unit, Error *err) {
    Fsdp *fsdp = unit->fsdp;
    const bool arrives = fsdp->second.unit || fsdp->gathering.memory == fsdp->leaving;
    if (arrives && drop_others(fsdp, NULL, err) != 0) return -1; // in the memory of gradients
    if (reduce_finish(fsdp, err) != 0) return -1;
    const size_t words = plan_reduce(unit);
    for (size_t first = 0; first < words; first += fsdp->reduce_room)
        if (reduce_finish(fsdp, err) != 0 || reduce_part(unit, first, words, err) != 0) return -1;
    define_gradients(unit);
    slot_return(fsdp, unit->gradients);
    unit->gradients = NULL;
    return fsdp->root->config.overlap ? 0 : reduce_finish(fsdp, err);
}

// ---- after an error -----------------------------------------------------------------------------

void moves_drop(Fsdp *fsdp) {
    Error ignored = {0};
    FsdpMove *const moves[] = {&fsdp->gathering, &fsdp->second, &fsdp->reducing};
    for (int i = 0; i < 3; i++) {
        if (moves[i]->unit) (void)pg_work_wait(moves[i]->work, NULL, NULL, &ignored);
        *moves[i] = (FsdpMove){0};
    }
}
