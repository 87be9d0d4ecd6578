/* fsdp_internal.h: the structs of a fully sharded model, for the files of this folder.
 *
 * A model has one Fsdp, its root's, with memory that all units use in turn:
 *
 *     slots      whole weights or whole gradients of one unit, each as large as the largest unit's
 *                (the root has its own)
 *     arriving   [W, gather_room]: the pieces of the unit that is being gathered
 *     leaving    [W, reduce_room]: the pieces of the gradients that are being reduced; between a
 *                step and the next backward, of a second unit that is being gathered
 *
 * A *piece* is what one rank contributes to a unit's collective: its shards of all parameters, one
 * after another (those gathered in 16 bits last), each padded to the rows of rank 0's. So a
 * gathered parameter is contiguous in rank order, and its padding is at its end. Pieces are counted
 * in words of 4 bytes; a word of a parameter gathered in 16 bits has two elements. A unit whose
 * pieces do not fit is moved in several collectives (the root's large embedding).
 */
#ifndef DDP_FSDP_FSDP_INTERNAL_H
#define DDP_FSDP_FSDP_INTERNAL_H

#include "ddp/fsdp/collect.h"
#include "ddp/fsdp/fully_shard.h"
#include "ddp/fsdp/identities.h"
#include "ddp/sync_state.h"

typedef struct Fsdp Fsdp;
typedef struct FsdpUnit FsdpUnit;

typedef struct FsdpParameter {
    Tensor *tensor;
    TensorShard shard; // Tensor.shard while it is sharded: from then on the unit has it
    size_t own_rows;
    size_t padded;             // elements of the shard with padding, the same on all ranks
    bool half;                 // gathered in config.precision
    size_t shard_at, whole_at; // its elements' offsets in unit->shards and in a slot
    // During a reduction. reduced: the parameter is part of it. adds: the result is added to the
    // shard's earlier gradient.
    bool reduced, adds;
    // Tensor.has_grad of the hidden state: of the shard's gradient while the whole one is shown,
    // and the reverse.
    bool hidden_has_grad;
} FsdpParameter;

struct FsdpUnit {
    Fsdp *fsdp;
    Module *module;
    FsdpConfig config;
    ModuleOwn own;

    size_t number;             // among the model's units: the bucket's number in traces and totals
    FsdpParameter *parameters; // [count]
    size_t count;
    bool trained;        // a parameter requires a gradient
    size_t shard_floats; // of `shards`; a reduced piece of all parameters
    size_t piece_words;  // of a gathered piece
    size_t whole_floats; // of a slot
    float *shards;       // [shard_floats], device memory
    float *shard_grads;  // [shard_floats], device memory; NULL: not trained
    // Slots; NULL: none. weights: the tensors are whole. gradients: of this backward, or held by
    // no_sync. shows_gradients: the tensors' grad and has_grad are the whole gradients'.
    float *weights, *gradients;
    bool shows_gradients;
};

typedef struct FsdpSlot {
    float *memory; // [floats]
    size_t floats;
    bool in_use;
} FsdpSlot;

// A list of units in the order of their forwards.
typedef struct FsdpOrder {
    FsdpUnit **units;
    size_t count, capacity;
} FsdpOrder;

// A collective in flight: words [first, first + count) of each rank's piece.
typedef struct FsdpMove {
    FsdpUnit *unit; // NULL: none
    PgWork *work;
    bool reduces; // or gathers
    size_t first, count;
    float *memory; // the pieces: arriving or leaving, [W, count]
} FsdpMove;

struct Fsdp {
    ProcessGroup *group;
    Device *device;
    FsdpUnit *root;
    FsdpUnit **units; // [count] in the order of the calls: the root is the last
    size_t count;
    bool sync; // set_requires_gradient_sync
    ShardedOptimizer optimizer;
    SyncState buffers;

    FsdpSlot *slots;
    size_t slot_count, slot_floats; // floats of a slot of any unit but the root
    float *arriving, *leaving;      // NULL before the first forward
    size_t gather_room, reduce_room;
    Slice *slices; // scratch: [parameters of the largest unit]

    FsdpMove gathering, reducing;
    FsdpMove second;     // the gather behind `gathering` in the queue, in `leaving`
    FsdpOrder last, now; // units entered in the last forward of the root, and in this one
    FsdpOrder left;      // units left by recorded forwards since the last backward
};

// ---- units.c: memory ------------------------------------------------------------------------

// torch.chunk's rule: the rows of a rank.
typedef struct ChunkRows {
    size_t first, count;
} ChunkRows;
ChunkRows chunk_rows(size_t rows, int world, int rank);
static inline size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}
static inline size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

// Makes shards of the module's free parameters. The unit is not attached to the module.
FsdpUnit *unit_create(Module *module, ProcessGroup *group, const FsdpConfig *config);
// Frees it; its tensors have no memory afterwards.
void unit_close(FsdpUnit *unit);
float *slot_take(Fsdp *fsdp, const FsdpUnit *unit);
void slot_return(Fsdp *fsdp, const float *memory);
// Allocates the memory of all units, before the first forward. Collective. 0, or -1.
int memory_open(Fsdp *fsdp, Error *err);
void memory_close(Fsdp *fsdp);

// Shows the whole weights, in unit->weights; frees them and shows the shards.
void unit_show_whole(FsdpUnit *unit);
void unit_reshard(FsdpUnit *unit);
// Shows the whole gradients; takes a slot for them unless some are held.
void unit_show_gradients(FsdpUnit *unit);

// ---- moves.c: collectives ---------------------------------------------------------------------

// Starts gathering, unless a gather is in flight; `second`: behind that one, if nothing is reduced.
// unit_gather waits and shows the whole weights; it drops gathers of other units. 0, or -1 with err
// filled.
int unit_start_gather(FsdpUnit *unit, bool second, Error *err);
int unit_gather(FsdpUnit *unit, Error *err);
// Starts reducing the unit's whole gradients, which are freed. Precondition: sharded. Completes the
// reduction in flight, if any. 0, or -1 with err filled.
int unit_start_reduce(FsdpUnit *unit, Error *err);
int reduce_finish(Fsdp *fsdp, Error *err);
// Waits for collectives in flight, also after an error, before their memory is freed.
void moves_drop(Fsdp *fsdp);

// ---- gather_ahead.c: the order --------------------------------------------------------------

extern const UnitCalls AHEAD_CALLS; // around a unit's forward and backward
// An optimizer's step, which starts the first gathers of the next forward as soon as it has updated
// their units. Precondition: a forward has run.
void ahead_step(Fsdp *fsdp);

// ---- fully_shard.c ----------------------------------------------------------------------------

Fsdp *fsdp_of(Module *module);

#endif
