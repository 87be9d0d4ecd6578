/* The mutex was still locked when the function returned: no other thread can ever add. */
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    pthread_mutex_lock(&turn->mutex);
    while (turn->next != shard) pthread_cond_wait(&turn->changed, &turn->mutex);
    for (size_t i = 0; i < turn->count; i++)
        turn->sum[i] = shard == 0 ? gradients[i] : turn->sum[i] + gradients[i];
    turn->next++;
    pthread_cond_broadcast(&turn->changed);
}
