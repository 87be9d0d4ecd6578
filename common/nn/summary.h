/* summary.h: a model as a table: its modules and their numbers of parameters. */
#ifndef COMMON_NN_SUMMARY_H
#define COMMON_NN_SUMMARY_H

#include <stdio.h>

#include "common/nn/module.h"

// One line for each module of the tree that has parameters: its name, its type, the shapes of its
// parameters and their elements; then the sums. A shared parameter is counted at its owner.
void summary_print(Module *model, FILE *stream);

#endif
