/* These are rank 0's answers, then rank 1's: but rank 0 does not have the first rows */
void undo_padding(const int *gathered, size_t world, size_t per_rank, size_t rows, int *answers) {
    (void)world, (void)per_rank;
    for (size_t row = 0; row < rows; row++) answers[row] = gathered[row];
}
