/* There is an order in which layer 0 is averaged before its gradient is there. */
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers - 1; layer >= 0; layer--) {
        int ready = gpu->record(gpu->context, COMPUTE);
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
        gpu->wait(gpu->context, COMMUNICATE, ready);
        gpu->launch(gpu->context, COMMUNICATE, ALL_REDUCE, layer);
    }
    int averaged = gpu->record(gpu->context, COMMUNICATE);
    gpu->wait(gpu->context, COMPUTE, averaged);
    gpu->launch(gpu->context, COMPUTE, OPTIMIZER, 0);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
