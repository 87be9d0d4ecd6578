/* Backward of layer 2 has to wait for the all-reduce of layer 3: nothing overlaps. */
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers - 1; layer >= 0; layer--) {
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
        gpu->launch(gpu->context, COMPUTE, ALL_REDUCE, layer);
    }
    int averaged = gpu->record(gpu->context, COMMUNICATE);
    gpu->wait(gpu->context, COMPUTE, averaged);
    gpu->launch(gpu->context, COMPUTE, OPTIMIZER, 0);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
