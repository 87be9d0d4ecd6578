/* The all-reduce of layer 3 has to wait for backward of layer 2: it could begin sooner. */
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers - 1; layer >= 0; layer--) {
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
    }
    gpu->wait(gpu->context, COMMUNICATE, gpu->record(gpu->context, COMPUTE));
    for (int layer = layers - 1; layer >= 0; layer--)
        gpu->launch(gpu->context, COMMUNICATE, ALL_REDUCE, layer);
    int averaged = gpu->record(gpu->context, COMMUNICATE);
    gpu->wait(gpu->context, COMPUTE, averaged);
    gpu->launch(gpu->context, COMPUTE, OPTIMIZER, 0);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
