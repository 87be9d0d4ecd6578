/* 01-run-shards.h: start all, wait for all.
 *
 * Write the function that runs a piece of work once for every shard, each in a thread of its own
 * (pthread_create), all of them at the same time, and that returns when the last one has ended
 * (pthread_join).
 *
 * A thread's function takes one pointer. Yours has two arguments to pass, the context and the
 * number of the shard: so it needs a struct for every thread, whose lifetime must last until that
 * thread has ended.
 */
#ifndef TUTORIALS_RUN_SHARDS_H
#define TUTORIALS_RUN_SHARDS_H

typedef void ShardWork(void *context, int shard);

enum { MOST_SHARDS = 64 };

// Calls work(context, shard) for every shard from 0 to count - 1. count: 1 to MOST_SHARDS.
void run_shards(int count, ShardWork *work, void *context);

#endif
