/* The learning rate must not be in the momentum buffer: then a changed rate would act late. */
void sgd_step(float *weights, float *momentum_buffer, const float *gradients, size_t count,
              const SgdSettings *settings, bool first_step) {
    for (size_t i = 0; i < count; i++) {
        float gradient = gradients[i] + settings->weight_decay * weights[i];
        float old = first_step ? 0.0f : settings->momentum * momentum_buffer[i];
        momentum_buffer[i] = old + settings->lr * gradient;
        weights[i] -= momentum_buffer[i];
    }
}
