/* Your part: find each number of the new part among the old ones. */
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine) {
    (void)saved, (void)world, (void)rank, (void)mine;
    return 0;
}
