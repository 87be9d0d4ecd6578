/* ranks.h: the common code of the tutorials' programs with several ranks (from step 7 on). */
#ifndef TUTORIALS_RANKS_H
#define TUTORIALS_RANKS_H

#include "common/nn/module.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/lesson.h"

// Reads this rank's number from the environment and opens the group of all ranks (step 7 writes it
// out); rank 0 prints and saves. The deadline of every wait is lesson->timeout_s. With --uneven N,
// rank r leaves out the last r N steps of the run. An error ends the program.
ProcessGroup *ranks_join(Rendezvous *me, Lesson *lesson);

// Runs a collective with the other ranks. An error ends the program with one line.
void ranks_run(ProcessGroup *group, Collective collective);

// Starts a collective; ranks_wait waits for its completion and sets *work to NULL (if it is NULL
// already, ranks_wait has no effect).
PgWork *ranks_start(ProcessGroup *group, Collective collective);
void ranks_wait(PgWork **work);

// Compares every rank's parameters with rank 0's, bit for bit. Rank 0 prints "replicas: equal", or
// the number of parameters that differ. Collective.
void ranks_print_whether_equal(ProcessGroup *group, Module *model);

// Rank 0 prints one number of each rank, a line per rank: "rank 1: first noise 0.1417", for the
// name "first noise " and 4 decimals. At most 64 ranks. Collective.
void ranks_print(ProcessGroup *group, const char *name, double number, int decimals);
// Prints "collectives in a step: 15": those since the sequence number `before`, divided by `steps`.
void ranks_print_collectives(const ProcessGroup *group, uint64_t before, size_t steps);
// Prints "collectives=161": those since the sequence number `before`.
void ranks_print_all_collectives(const ProcessGroup *group, uint64_t before);
// Prints "collectives=161 norm=0.25": those since the sequence number `before`, and a norm.
void ranks_print_norm(const ProcessGroup *group, uint64_t before, double norm);
// Prints which of the `count` weights this rank steps, and the bytes of the optimizer's state.
void ranks_print_part(const ProcessGroup *group, const Optimizer *optimizer, size_t share,
                      size_t count);
// As ranks_print, for the running mean of each rank's first batch norm. Collective.
void ranks_print_running_mean(ProcessGroup *group, Module *model);

// Replaces the lesson's sampler: each rank draws its own rows, as step 10 writes it out.
void ranks_share_samples(ProcessGroup *group, Lesson *lesson);

// With --show, in the first step of an epoch, rank 0 prints each rank's first samples, and the
// number of samples that at least one rank uses; otherwise no effect. At most 64 ranks. Collective.
void ranks_print_epoch(ProcessGroup *group, const Lesson *lesson, double lr);

#endif
