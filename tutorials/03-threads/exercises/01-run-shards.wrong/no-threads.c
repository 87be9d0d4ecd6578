/* A shard ran in the caller's own thread: each shard is to have a thread of its own. */
void run_shards(int count, ShardWork *work, void *context) {
    for (int i = 0; i < count; i++) work(context, i);
}
