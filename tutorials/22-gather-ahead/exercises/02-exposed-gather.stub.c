/* Your part: which all-gather is hidden behind which computation. */
double exposed_gather_s(const double *forward_s, const double *backward_s, const double *gather_s,
                        size_t units, bool ahead) {
    (void)forward_s, (void)backward_s, (void)gather_s, (void)units, (void)ahead;
    return 0;
}
