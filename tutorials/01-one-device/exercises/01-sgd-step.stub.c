/* Your part: the three formulas, for every i from 0 to count - 1. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    (void)weights, (void)momentum_buffer, (void)gradients;
    (void)count, (void)settings, (void)first_step;
}
