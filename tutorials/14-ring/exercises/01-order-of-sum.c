/* 01-order-of-sum.c: around the ring, from where the chunk begins. The task is in
 * 01-order-of-sum.h.
 */
#include "tutorials/14-ring/exercises/01-order-of-sum.h"

// SOLUTION BEGIN
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const size_t ranks = (size_t)world, length = (count + ranks - 1) / ranks; // of a chunk
    const int chunk = (int)(place / length);
    for (int i = 0; i < world; i++) order[i] = (chunk + i) % world;
}
// SOLUTION END
