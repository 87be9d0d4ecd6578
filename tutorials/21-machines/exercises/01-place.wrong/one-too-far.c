/* Rank 2 is on node 1, and not on node 0. */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    for (int node = 0; node < nodes && rank >= 0; node++) {
        if (rank <= ranks_of_node[node]) return (Place){node, rank};
        rank -= ranks_of_node[node];
    }
    return (Place){-1, -1};
}
