/* Your part: find the rank's node, and its number there. */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    (void)ranks_of_node, (void)nodes, (void)rank;
    return (Place){-1, -1};
}
