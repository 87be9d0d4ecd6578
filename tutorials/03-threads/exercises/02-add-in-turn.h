/* 02-add-in-turn.h: threads that add to one sum, in the shards' order.
 *
 * Each thread calls this function when its gradients are ready, and they become ready in any order.
 * A lock around the addition keeps two threads from writing at the same time, but the threads would
 * still add in the order of their arrival. The sum must be
 *
 *     sum = gradients of shard 0;  sum += those of shard 1;  sum += those of shard 2;  ...
 *
 * So a thread that arrives early waits for its turn: until turn->next is the number of its shard.
 * After its addition it sets turn->next to the next shard and wakes the waiting threads.
 */
#ifndef TUTORIALS_ADD_IN_TURN_H
#define TUTORIALS_ADD_IN_TURN_H

#include <pthread.h>
#include <stddef.h>

typedef struct Turn {
    pthread_mutex_t mutex;  // protects the fields below
    pthread_cond_t changed; // signalled when next changes
    int next;               // the shard whose turn it is; initially 0
    float *sum;             // [count]; undefined before shard 0's addition
    size_t count;
} Turn;

// Called once by each shard's thread. Returns after the addition of its gradients.
void add_in_turn(Turn *turn, int shard, const float *gradients);

#endif
