/* ranks.h: what the tutorials' programs of several ranks share (from step 6 on). */
#ifndef TUTORIALS_RANKS_H
#define TUTORIALS_RANKS_H

#include "common/nn/module.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/lesson.h"

// Learns from the environment which rank this is, and meets the others (step 6 writes it out).
// timeout_s is how long a rank waits for the others before it gives up. An error ends the program.
ProcessGroup *ranks_join(Rendezvous *me, double timeout_s);

// Carries out a collective with the other ranks. An error ends the program with one line.
void ranks_run(ProcessGroup *group, Collective collective);

// Compares every rank's parameters with rank 0's, bit for bit. Rank 0 prints "replicas: equal", or
// how many of how many parameters are different. Collective.
void ranks_print_whether_equal(ProcessGroup *group, Module *model);

// Rank 0 prints a number that each rank has, a line for each: "rank 1: first noise 0.1417". At most
// 64 ranks. Collective.
void ranks_print(ProcessGroup *group, const char *what, double number);

// From now on each rank draws its own rows, as step 9 writes it out.
void ranks_share_samples(ProcessGroup *group, Lesson *lesson);

// In the first step of an epoch, rank 0 prints with which samples each rank begins, and how many of
// the data set some rank is going to see. Else nothing happens. At most 64 ranks. Collective.
void ranks_print_epoch(ProcessGroup *group, const Lesson *lesson, double lr);

#endif
