/* The shards did not run at the same time: start all threads before you wait for the first. */
typedef struct ShardThread {
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
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        ShardThread self = {.work = work, .context = context, .shard = i};
        pthread_create(&thread, NULL, run_shard, &self);
        pthread_join(thread, NULL);
    }
}
