/* The gradients were changed; only the weights and the buffer are yours to write. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    float *g = (float *)gradients;
    for (size_t i = 0; i < count; i++) {
        g[i] += settings->weight_decay * weights[i];
        momentum_buffer[i] = first_step ? g[i] : settings->momentum * momentum_buffer[i] + g[i];
        weights[i] -= settings->lr * momentum_buffer[i];
    }
}
