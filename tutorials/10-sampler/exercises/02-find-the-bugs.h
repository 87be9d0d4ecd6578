/* 02-find-the-bugs.h: the review of a published script.
 *
 * The script trains on several ranks, ends without an error, and prints a plausible accuracy. It
 * has been copied into many programs. `tutorials/start 10` gives you its three functions,
 * translated into C with their mistakes. There are four:
 *
 * - one of its settings depends on the clock, so a run cannot be repeated, and ranks that start a
 *   moment apart use different orders;
 * - one of its settings makes every step walk the whole graph, though the model does not need it;
 * - one operation is done on rank 0 only, although all ranks need it;
 * - the accuracy is not that of the test set.
 *
 * Find them, and correct the functions. In the test all ranks share the work: each sample of the
 * test set is tested once, by one rank, also if the number of ranks does not divide their number;
 * and all ranks have the accuracy afterwards.
 */
#ifndef TUTORIALS_FIND_THE_BUGS_H
#define TUTORIALS_FIND_THE_BUGS_H

#include "ddp/group/process_group.h"

typedef struct Script Script;
struct Script { // of one rank
    ProcessGroup *group;
    uint64_t seed_option;       // the user's --seed
    uint64_t clock;             // this rank's time
    bool some_weights_may_rest; // a forward of this model may leave out parameters
    int saved_epoch;            // in the checkpoint, a file that every rank can read
    float saved_weight;
    size_t test_count;                                     // samples of the test set
    bool (*is_right)(const Script *script, size_t sample); // tests one of them

    uint64_t seed; // of the sampler
    bool find_unused_parameters;
    int epoch; // from which training continues
    float weight;
    double accuracy; // in the whole test set
};

// Each is called by all ranks. 0, or -1 with err filled.
int script_begin(Script *script, Error *err);  // sets seed and find_unused_parameters
int script_resume(Script *script, Error *err); // sets epoch and weight
int script_test(Script *script, Error *err);   // sets accuracy

#endif
