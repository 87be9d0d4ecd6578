/* 02-exposed.c: a queue of buckets. The task is in 02-exposed.h. */
#include "tutorials/22-what-it-buys/exercises/02-exposed.h"

// SOLUTION BEGIN
double exposed_s(const double *ready_s, const double *reduce_s, int buckets, double backward_s) {
    double end = 0;
    for (int b = 0; b < buckets; b++) {
        double begin = ready_s[b] > end ? ready_s[b] : end;
        end = begin + reduce_s[b];
    }
    return end > backward_s ? end - backward_s : 0;
}
// SOLUTION END
