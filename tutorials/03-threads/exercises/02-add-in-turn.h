/* 02-add-in-turn.h: threads that add to one sum, in the shards' order.
 *
 * Each thread calls this function when its gradients are ready, and they become ready in any order.
 * A lock around the addition keeps two threads from writing at the same time, but the first one to
 * come would still be the first one to add. What is wanted is
 *
 *     sum = gradients of shard 0;  sum += those of shard 1;  sum += those of shard 2;  ...
 *
 * So a thread that comes too early waits for its turn: until turn->next is the number of its shard.
 * When it has added, it gives the turn to the next shard and wakes those that wait.
 */
#ifndef TUTORIALS_ADD_IN_TURN_H
#define TUTORIALS_ADD_IN_TURN_H

#include <pthread.h>
#include <stddef.h>

typedef struct Turn {
    pthread_mutex_t mutex;  // protects what follows
    pthread_cond_t changed; // next is another one now
    int next;               // whose turn it is; 0 before the first
    float *sum;             // [count]; what stands in it before shard 0 has come means nothing
    size_t count;
} Turn;

// Called by the shard's own thread, once. Returns when its gradients are in the sum.
void add_in_turn(Turn *turn, int shard, const float *gradients);

#endif
