/* Weight decay belongs into the gradient, before the momentum: g = g + weight_decay * w. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    for (size_t i = 0; i < count; i++) {
        float old = first_step ? 0.0f : settings->momentum * momentum_buffer[i];
        momentum_buffer[i] = old + gradients[i];
        weights[i] -= settings->lr * (momentum_buffer[i] + settings->weight_decay * weights[i]);
    }
}
