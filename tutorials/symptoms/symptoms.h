/* symptoms.h: the symptoms of symptoms.md, each reproduced in few lines and measured as a number.
 *
 * A symptom is a function that every rank runs. me->broken: make the mistake. Rank 0 prints its
 * return value. Ranks are threads of this process, each with its own end of one group.
 */
#ifndef TUTORIALS_SYMPTOMS_H
#define TUTORIALS_SYMPTOMS_H

#include "tutorials/lesson.h"

#include "ddp/rendezvous/init.h"

#define TIMEOUT_S 120.0 // of collectives

typedef struct SymptomRank {
    int rank, world;
    ProcessGroup *group;
    Device *device; // "cpu:rank", this rank's own
    bool broken;    // make the mistake
    Error err;      // this rank's error; rank 0's is printed
} SymptomRank;

typedef struct Symptom {
    const char *name;   // of --break
    const char *what;   // the number is: "rows in a step of all ranks"
    double least, most; // of a right number
    int world;
    double (*run)(SymptomRank *me);
    double timeout_s; // of collectives when broken; 0: TIMEOUT_S
} Symptom;

// One list per file, ended by a row without a name.
extern const Symptom SYMPTOMS_OF_SPEED[], SYMPTOMS_OF_DATA[], SYMPTOMS_OF_GRADIENTS[],
    SYMPTOMS_OF_STATE[], SYMPTOMS_OF_WAITING[], SYMPTOMS_OF_MESSAGES[], SYMPTOMS_OF_SHARDING[];

// Carries out a collective that cannot fail here: an error ends the program.
void symptom_run(const SymptomRank *me, Collective collective);
// The sum over all ranks.
double symptom_sum(const SymptomRank *me, double number);

#endif
