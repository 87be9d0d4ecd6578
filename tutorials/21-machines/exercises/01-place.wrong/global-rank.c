/* Rank 2 is local rank 0: numbers on a node begin with 0, as its devices do. */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    int number = rank;
    for (int node = 0; node < nodes && rank >= 0; node++) {
        if (rank < ranks_of_node[node]) return (Place){node, number};
        rank -= ranks_of_node[node];
    }
    return (Place){-1, -1};
}
