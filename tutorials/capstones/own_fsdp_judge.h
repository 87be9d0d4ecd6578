/* own_fsdp_judge.h: the judge of a fully sharded data parallel of a student's own: a model made for
 * it, and functions between the model's units and the student's. They call each of the
 * student's functions and check the parameters afterwards.
 */
#ifndef TUTORIALS_CAPSTONES_OWN_FSDP_JUDGE_H
#define TUTORIALS_CAPSTONES_OWN_FSDP_JUDGE_H

#include "common/nn/tape.h"
#include "ddp/fsdp/own/own_units.h"

enum {
    ROWS = 3,
    WIDTH = 23,
    INNER = 151,
    BLOCKS = 8,
    STEPS = 3,
    SLEEP_US = 12000,
    TENSORS = 10 * BLOCKS + 4
};

typedef struct Memory {  // bytes
    size_t device, host; // without the student's: of the device; of malloc without the device
    size_t limit;        // of the student's device and shared memory; 0: not judged
    size_t unit;         // of the largest unit
} Memory;

typedef struct Spent { // milliseconds in the student's functions for one unit in a step
    double forward, backward, reduce;
} Spent;

typedef struct Rig {
    Device *device;
    ProcessGroup *group; // the student's
    ProcessGroup *apart; // the same ranks, for the rig alone
    int rank, size;
    const OwnFsdp *file;
    void *self;
    OwnUnits *units;
    const OwnFsdpUnit *listed; // [count], the root last
    size_t count;
    Module *model, *twin; // the twin is not sharded
    NamedTensors tensors, twins;
    const float *shard_grads[TENSORS]; // by tensor
    Tape *tape;
    ReduceOp op;
    bool frozen, unused, tied, twice, sleeps; // the model's kind
    bool may_fail;                            // a function's error is no miss
    // Units with incomplete gradients; whether before_backward's unit is one of them.
    bool held[BLOCKS + 1], holds;
    float *kept[TENSORS]; // whole gradients of held units after backward, by tensor; or NULL
    int step, parts;      // parts: backwards of a step
    Memory memory;
    Spent spent[BLOCKS + 2]; // by unit; the last: in finish_backward
    double step_ms;
} Rig;

extern Rig rig;

// Prints MISS and the sentence, and ends the job.
__attribute__((noreturn, format(printf, 1, 2))) void miss(const char *format, ...);
// Misses after an error of the student's function, unless it may fail. Returns the status.
int must(const char *function, int status, const Error *err);

// Returns the model of the rig's kind, without units.
Module *judged_model(void);
// Returns element i of a rank's initial weights.
float judged_number(int rank, size_t tensor, size_t i);

// This rank's shard of a whole tensor: rows [first, first + count) of `all`, of `length` floats.
typedef struct Rows {
    size_t all, chunk, first, count, length;
} Rows;
Rows rows_of(const Tensor *whole);
// Returns the bytes of the unit's weights, each padded to c rows for each of `ranks` ranks.
size_t padded_bytes(const OwnFsdpUnit *unit, size_t ranks);
// Returns malloc's bytes in use, without the device's.
size_t host_bytes(void);

extern const OwnFsdp JUDGE;

#endif
