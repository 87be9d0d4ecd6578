/* 03-find-the-bugs.h: the review of a published script.
 *
 * The script trains on several ranks, ends without an error, and prints an accuracy that looks
 * well. Its article has been copied into many programs. `tutorials/start 09` gives you its three
 * functions, told in C with everything that is wrong in them. Four things are:
 *
 * - one of its settings comes from the clock, so a run cannot be repeated, and ranks that start a
 *   moment apart deal out different orders;
 * - one of its settings makes every step walk the whole graph, though the model does not need it;
 * - one thing is done on rank 0 only that all ranks have to do;
 * - the accuracy is not that of the test set.
 *
 * Find them, and write the functions as they should be. In the test all ranks are to share the
 * work: each sample of the test set is tested once, by one rank, also if the number of ranks does
 * not divide them; and all ranks know the accuracy afterwards.
 */
#ifndef TUTORIALS_FIND_THE_BUGS_H
#define TUTORIALS_FIND_THE_BUGS_H

#include "ddp/group/process_group.h"

typedef struct Script Script;
struct Script { // of one rank
    ProcessGroup *group;
    uint64_t seed_option;       // what the user has asked for by --seed
    uint64_t clock;             // what the time is here
    bool some_weights_may_rest; // does a forward of this model leave out parameters?
    int saved_epoch;            // in the checkpoint, a file that every rank can read
    float saved_weight;
    size_t test_count;                                     // samples of the test set
    bool (*is_right)(const Script *script, size_t sample); // tests one of them

    uint64_t seed; // of the sampler
    bool find_unused_parameters;
    int epoch; // where the training continues
    float weight;
    double accuracy; // in the whole test set
};

// Each is called by all ranks. 0, or -1 with err filled.
int script_begin(Script *script, Error *err);  // sets seed and find_unused_parameters
int script_resume(Script *script, Error *err); // sets epoch and weight
int script_test(Script *script, Error *err);   // sets accuracy

#endif
