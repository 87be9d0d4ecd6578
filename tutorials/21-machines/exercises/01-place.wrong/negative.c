/* No rank of 5 has the number -1, and it was put on node 0 as -1. */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    for (int node = 0; node < nodes; node++) {
        if (rank < ranks_of_node[node]) return (Place){node, rank};
        rank -= ranks_of_node[node];
    }
    return (Place){-1, -1};
}
