/* 01-ring-or-tree.c: rounds and bytes. The task is in 01-ring-or-tree.h. */
#include "tutorials/28-what-it-buys/exercises/01-ring-or-tree.h"

// SOLUTION BEGIN
double ring_s(LinkCosts link, int devices, double bytes) {
    return 2 * (devices - 1) * (link.latency_s + bytes / devices / link.bytes_per_s);
}

double tree_s(LinkCosts link, int devices, double bytes) {
    int levels = 0;
    while ((1 << levels) < devices) levels++;
    return 2 * levels * (link.latency_s + bytes / link.bytes_per_s);
}

bool tree_is_faster(LinkCosts link, int devices, double bytes) {
    return tree_s(link, devices, bytes) < ring_s(link, devices, bytes);
}
// SOLUTION END
