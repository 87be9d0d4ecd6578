/* There are the layers 0 to 3, and something was launched for layer 4. */
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers; layer >= 0; layer--) {
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
        int ready = gpu->record(gpu->context, COMPUTE);
        gpu->wait(gpu->context, COMMUNICATE, ready);
        gpu->launch(gpu->context, COMMUNICATE, ALL_REDUCE, layer);
    }
    int averaged = gpu->record(gpu->context, COMMUNICATE);
    gpu->wait(gpu->context, COMPUTE, averaged);
    gpu->launch(gpu->context, COMPUTE, OPTIMIZER, 0);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
