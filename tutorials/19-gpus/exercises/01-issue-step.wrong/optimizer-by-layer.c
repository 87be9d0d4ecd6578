/* The optimizer or the copy was launched with layer 1 */
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers - 1; layer >= 0; layer--) {
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
        int ready = gpu->record(gpu->context, COMPUTE);
        gpu->wait(gpu->context, COMMUNICATE, ready);
        gpu->launch(gpu->context, COMMUNICATE, ALL_REDUCE, layer);
    }
    int averaged = gpu->record(gpu->context, COMMUNICATE);
    gpu->wait(gpu->context, COMPUTE, averaged);
    for (int layer = 0; layer < layers; layer++)
        gpu->launch(gpu->context, COMPUTE, OPTIMIZER, layer);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
