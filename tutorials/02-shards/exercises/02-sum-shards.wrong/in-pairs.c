/* The sum is right, but its last bits are those of another order: first shard first. */
#include <string.h>
static float pair(const float *const *shards, size_t from, size_t to, size_t i) {
    if (to - from == 1) return shards[from][i];
    size_t middle = (from + to) / 2;
    return pair(shards, from, middle, i) + pair(shards, middle, to, i);
}
void sum_shards(float *sum, const float *const *shards, size_t shard_count, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] = pair(shards, 0, shard_count, i);
}
