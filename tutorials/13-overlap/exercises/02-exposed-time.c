/* 02-exposed-time.c: a timeline. The task is in 02-exposed-time.h. */
#include "tutorials/13-overlap/exercises/02-exposed-time.h"

// SOLUTION BEGIN
double exposed_time(const double *ready, const double *cost, size_t count, double backward) {
    double arrived = 0; // when the last bucket so far has
    for (size_t b = 0; b < count; b++)
        arrived = (ready[b] > arrived ? ready[b] : arrived) + cost[b];
    return arrived > backward ? arrived - backward : 0;
}
// SOLUTION END
