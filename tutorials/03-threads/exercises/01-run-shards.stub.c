/* Your part: a struct for each thread, the function that a thread begins with, and this one. */
void run_shards(int count, ShardWork *work, void *context) {
    (void)count;
    work(context, 0);
}
