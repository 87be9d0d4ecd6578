/* breaks.h: the versions of a step's program, and the choice of one by the command line.
 *
 * PROGRAM.breaks has a version for each mistake that the program can make on purpose
 * (--break=NAME), and for a flag that makes it print more (--NAME): the lines that it replaces, in
 * the form of grading/versions.awk. So the program itself holds the lesson alone. The build
 * compiles all of them into tutorial_NN, each with a main of its own name.
 */
#ifndef TUTORIALS_BREAKS_H
#define TUTORIALS_BREAKS_H

#include <stddef.h>

typedef struct Version {
    const char
        *name; // the value of --break, or "--NAME"; "none", the program as it is, comes first
    int (*main)(int argc, char **argv);
} Version;

// Runs the version that argv names, and returns its status. The program's own options reject an
// unknown name.
int run_version(const Version *versions, size_t count, int argc, char **argv);

#endif
