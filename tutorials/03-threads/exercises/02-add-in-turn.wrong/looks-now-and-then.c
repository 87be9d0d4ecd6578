/* to look again from time to time is no way to wait. */
#include <stdlib.h>
#include <unistd.h>
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    while (1) {
        pthread_mutex_lock(&turn->mutex);
        if (turn->next == shard) break;
        pthread_mutex_unlock(&turn->mutex);
        usleep(1000);
    }
    for (size_t i = 0; i < turn->count; i++)
        turn->sum[i] = shard == 0 ? gradients[i] : turn->sum[i] + gradients[i];
    turn->next++;
    pthread_mutex_unlock(&turn->mutex);
}