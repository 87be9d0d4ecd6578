/* ranks.h: what the tutorials' programs of several ranks share (from step 6 on). */
#ifndef TUTORIALS_RANKS_H
#define TUTORIALS_RANKS_H

#include "common/nn/module.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/lesson.h"

// Learns from the environment which rank this is, and meets the others (step 6 writes it out); rank
// 0 prints and saves. A rank waits lesson->timeout_s for the others. With --uneven N, rank r leaves
// out the last r N steps of the run. An error ends the program.
ProcessGroup *ranks_join(Rendezvous *me, Lesson *lesson);

// Carries out a collective with the other ranks. An error ends the program with one line.
void ranks_run(ProcessGroup *group, Collective collective);

// The same without waiting: ranks_wait waits, and sets *work to NULL. If it is NULL: returns.
PgWork *ranks_start(ProcessGroup *group, Collective collective);
void ranks_wait(PgWork **work);

// Compares every rank's parameters with rank 0's, bit for bit. Rank 0 prints "replicas: equal", or
// how many of how many parameters are different. Collective.
void ranks_print_whether_equal(ProcessGroup *group, Module *model);

// Rank 0 prints a number that each rank has, a line for each: "rank 1: first noise 0.1417", for the
// name "first noise " and 4 decimals. At most 64 ranks. Collective.
void ranks_print(ProcessGroup *group, const char *name, double number, int decimals);
// Prints "collectives in a step: 15": of those since sequence number `before`, in `steps` steps.
void ranks_print_collectives(const ProcessGroup *group, uint64_t before, size_t steps);
// Prints "collectives=161 norm=0.25": those since the sequence number `before`, and a norm.
void ranks_print_norm(const ProcessGroup *group, uint64_t before, double norm);
// Prints which of the `count` weights this rank steps, and the bytes of the optimizer's state.
void ranks_print_part(const ProcessGroup *group, const Optimizer *optimizer, size_t share,
                      size_t count);
// As ranks_print, what each rank's first batch norm remembers of its inputs. Collective.
void ranks_print_running_mean(ProcessGroup *group, Module *model);

// From now on each rank draws its own rows, as step 9 writes it out.
void ranks_share_samples(ProcessGroup *group, Lesson *lesson);

// With --show, in the first step of an epoch, rank 0 prints each rank's first samples, and how many
// of the data set some rank will see. Else no operation. At most 64 ranks. Collective.
void ranks_print_epoch(ProcessGroup *group, const Lesson *lesson, double lr);

#endif
