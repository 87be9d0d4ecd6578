/* The last shard was never run: there are count of them, from 0 to count - 1. */
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
    int last = count > 1 ? count - 1 : 1;
    for (int i = 0; i < last; i++) {
        threads[i] = (ShardThread){.work = work, .context = context, .shard = i};
        pthread_create(&threads[i].thread, NULL, run_shard, &threads[i]);
    }
    for (int i = 0; i < last; i++) pthread_join(threads[i].thread, NULL);
}
