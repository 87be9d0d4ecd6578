/* Your part: this stub lists the parameters in reverse order, without regard to their uses. */
size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order) {
    (void)additions, (void)count, (void)frozen;
    for (size_t k = 0; k < parameters; k++) order[k] = parameters - 1 - k;
    return parameters;
}
