/* It crashed (SIGSEGV) */
Place place_of_rank(const int *ranks_of_node, int nodes, int rank) {
    int node = 0;
    while (rank >= ranks_of_node[node]) rank -= ranks_of_node[node++];
    return node < nodes && rank >= 0 ? (Place){node, rank} : (Place){-1, -1};
}
