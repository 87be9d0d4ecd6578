/* Rank 2 is on node 1, and not on node 2. */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    int all = 0;
    for (int node = 0; node < nodes; node++) all += ranks_of_node[node];
    if (rank < 0 || rank >= all) return (Place){-1, -1};
    return (Place){rank / ranks_of_node[0], rank % ranks_of_node[0]};
}
