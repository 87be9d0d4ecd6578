/* ranks.h: what the tutorials' programs of several ranks share (from step 6 on). */
#ifndef TUTORIALS_RANKS_H
#define TUTORIALS_RANKS_H

#include "common/nn/module.h"
#include "ddp/rendezvous/init.h"

// Carries out a collective with the other ranks. An error ends the program with one line.
void ranks_run(ProcessGroup *group, Collective collective);

// Compares every rank's parameters with rank 0's, bit for bit. Rank 0 prints "replicas: equal", or
// how many of how many parameters are different. Collective.
void ranks_print_whether_equal(ProcessGroup *group, Module *model);

#endif
