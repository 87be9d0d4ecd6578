/* 01-run-shards.c: a thread for each shard. The task is in 01-run-shards.h. */
#include "tutorials/03-threads/exercises/01-run-shards.h"

#include <pthread.h>

// SOLUTION BEGIN
typedef struct ShardThread {
    pthread_t thread;
    ShardWork *work;
    void *context;
    int shard;
} ShardThread;

static void *run_shard(void *argument) {
    ShardThread *self = argument;
    self->work(self->context, self->shard);
    return NULL;
}

void run_shards(int count, ShardWork *work, void *context) {
    ShardThread threads[MOST_SHARDS];
    for (int i = 0; i < count; i++) {
        threads[i] = (ShardThread){.work = work, .context = context, .shard = i};
        pthread_create(&threads[i].thread, NULL, run_shard, &threads[i]);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i].thread, NULL);
}
// SOLUTION END
