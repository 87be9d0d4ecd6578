/* 03-break-even.c: solved for the bandwidth. The task is in 03-break-even.h. */
#include "tutorials/28-what-it-buys/exercises/03-break-even.h"

#include <math.h>

// SOLUTION BEGIN
double break_even_bits_per_s(double compute_s, double bytes, int messages, double latency_s) {
    double left_s = compute_s - 2 * messages * latency_s; // for the bytes, there and back
    return left_s > 0 ? 8 * 2 * bytes / left_s : INFINITY;
}
// SOLUTION END
