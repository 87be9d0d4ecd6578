/* the repeated ones were kept. */
void undo_padding(const int *gathered, size_t world, size_t per_rank, size_t rows, int *answers) {
    (void)rows;
    for (size_t i = 0; i < world * per_rank; i++)
        answers[i] = gathered[i % world * per_rank + i / world];
}
