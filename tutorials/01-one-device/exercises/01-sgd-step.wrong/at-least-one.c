/* The count was 0, and a weight or a buffer was written nevertheless. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    size_t i = 0;
    do {
        float g = gradients[i] + settings->weight_decay * weights[i];
        momentum_buffer[i] = (first_step ? 0.0f : settings->momentum * momentum_buffer[i]) + g;
        weights[i] -= settings->lr * momentum_buffer[i];
    } while (++i < count);
}
