/* It crashed (SIGSEGV): it read or wrote memory that is not its own. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    float g[64];
    for (size_t i = 0; i < count; i++) g[i] = gradients[i] + settings->weight_decay * weights[i];
    for (size_t i = 0; i < count; i++) {
        momentum_buffer[i] = (first_step ? 0.0f : settings->momentum * momentum_buffer[i]) + g[i];
        weights[i] -= settings->lr * momentum_buffer[i];
    }
}
