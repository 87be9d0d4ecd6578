/* Your part: the position of row 0's answer, of row 1's, and so on. */
void undo_padding(const int *gathered, size_t world, size_t per_rank, size_t rows, int *answers) {
    (void)gathered, (void)world, (void)per_rank, (void)rows, (void)answers;
}
