/* Your part: what a rank always keeps, and the worst moment of a step. */
size_t fully_sharded_peak(const size_t *parameters, const bool *keeps_weights, size_t units,
                          size_t world) {
    (void)parameters, (void)keeps_weights, (void)units, (void)world;
    return 0;
}
