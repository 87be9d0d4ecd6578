/* The ranks had 5 answers each, more than 7 rows need */
void undo_padding(const int *gathered, size_t world, size_t per_rank, size_t rows, int *answers) {
    (void)per_rank;
    size_t each = (rows + world - 1) / world;
    for (size_t row = 0; row < rows; row++)
        answers[row] = gathered[row % world * each + row / world];
}
