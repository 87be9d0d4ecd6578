/* Your part: wait for the turn, add, give the turn to the next. This one only sums. */
void add_in_turn(Turn *turn, int shard, const float *gradients) {
    (void)shard;
    for (size_t i = 0; i < turn->count; i++) turn->sum[i] += gradients[i];
}
