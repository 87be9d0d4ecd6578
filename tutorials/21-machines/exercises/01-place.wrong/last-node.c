/* No rank of 5 has the number 5, and it was put on node 1 as 3. */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    for (int node = 0; node < nodes && rank >= 0; node++) {
        if (rank < ranks_of_node[node] || node == nodes - 1) return (Place){node, rank};
        rank -= ranks_of_node[node];
    }
    return (Place){-1, -1};
}
