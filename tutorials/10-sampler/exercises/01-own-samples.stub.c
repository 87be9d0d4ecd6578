/* Your part: the samples at rank, rank + world, rank + 2 world, ... of the order. */
size_t own_samples(const size_t *order, size_t samples, int world, int rank, size_t *own) {
    (void)order, (void)samples, (void)world, (void)rank, (void)own;
    return 0;
}
