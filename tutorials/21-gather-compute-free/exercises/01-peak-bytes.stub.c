/* Your part: the bytes that a rank always holds, and the peak within a step. */
size_t fully_sharded_peak(const size_t *parameters, const bool *keeps_weights, size_t units,
                          size_t world) {
    (void)parameters, (void)keeps_weights, (void)units, (void)world;
    return 0;
}
