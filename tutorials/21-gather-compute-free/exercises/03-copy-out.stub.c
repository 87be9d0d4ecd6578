/* Your part: for each rank and each parameter, where its chunk lies and how many rows it has. */
void copy_out(const float *gathered, const WholeParameter *parameters, size_t count, size_t world) {
    (void)gathered, (void)parameters, (void)count, (void)world;
}
