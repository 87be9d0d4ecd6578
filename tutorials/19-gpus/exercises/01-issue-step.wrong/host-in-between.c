/* The host waited in the middle of the step */
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers - 1; layer >= 0; layer--) {
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
        int ready = gpu->record(gpu->context, COMPUTE);
        gpu->wait(gpu->context, COMMUNICATE, ready);
        gpu->launch(gpu->context, COMMUNICATE, ALL_REDUCE, layer);
    }
    gpu->synchronize(gpu->context, COMMUNICATE);
    gpu->launch(gpu->context, COMPUTE, OPTIMIZER, 0);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
