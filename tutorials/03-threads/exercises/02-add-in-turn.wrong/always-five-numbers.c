/* turn->count was 2, and so many numbers are to be added; yours were others. */
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    pthread_mutex_lock(&turn->mutex);
    while (turn->next != shard) pthread_cond_wait(&turn->changed, &turn->mutex);
    for (size_t i = 0; i < 5; i++)
        turn->sum[i] = shard == 0 ? gradients[i] : turn->sum[i] + gradients[i];
    turn->next++;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}
