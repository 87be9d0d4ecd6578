/* Chunk c begins at rank c, and the others follow around the ring, not by their numbers. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    const size_t ranks = (size_t)world, length = (count + ranks - 1) / ranks;
    const int chunk = (int)(place / length);
    order[0] = chunk;
    for (int i = 1, rank = 0; i < world; rank++)
        if (rank != chunk) order[i++] = rank;
}
