/* 02-exposed-gather.c: the part of a gather that a unit's computation does not hide. The task is in
 * the header.
 */
#include "tutorials/22-gather-ahead/exercises/02-exposed-gather.h"

// SOLUTION BEGIN
// The remaining time of an all-gather that starts with a computation, after it.
static double left_over(double gather, double computation, bool ahead) {
    if (!ahead) return gather;
    return gather > computation ? gather - computation : 0;
}

double exposed_gather_s(const double *forward_s, const double *backward_s, const double *gather_s,
                        size_t units, bool ahead) {
    double waits = units > 0 ? gather_s[0] : 0;
    for (size_t u = 1; u < units; u++) waits += left_over(gather_s[u], forward_s[u - 1], ahead);
    for (size_t u = 1; u < units; u++) waits += left_over(gather_s[u - 1], backward_s[u], ahead);
    return waits;
}
// SOLUTION END
