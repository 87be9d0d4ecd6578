/* A NaN stood in the sum before, and it is still one: 0 times NaN is NaN, too. */
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    pthread_mutex_lock(&turn->mutex);
    while (turn->next != shard) pthread_cond_wait(&turn->changed, &turn->mutex);
    for (size_t i = 0; i < turn->count; i++)
        turn->sum[i] = (shard == 0 ? 0.0f * turn->sum[i] : turn->sum[i]) + gradients[i];
    turn->next++;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}
